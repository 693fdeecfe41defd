// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/quantised/forms/links.cuh"
#include "kernels/cuda/quantised/forms/one.h"
#include "kernels/cuda/rows/sum_of_squares.cuh"

// A warp takes four rows of weights (a tile) over all of k, through a ring of its own: a stage is
// eight quads of each row, and a lane has one quad, of which it makes all integer sums. The chain
// of a row walks over the eight lanes that have it. So warps never wait for each other; the first
// stages are asked for before the kernel in front has ended. Where that would leave warps without
// work, tiles have two rows, and stages sixteen quads of each: a warp is bound by the latency of
// its stages, one after another, and has half as many.
namespace reprise::cuda {
namespace one {

using links::EightFloats;
using links::Links;
using links::QuantiseInto;
using links::Stage;

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kTallTile = 4;  // rows of weights of a warp
constexpr int kFlatTile = 2;
constexpr int kQuadsMost = 32 / kFlatTile;  // of each in a stage
constexpr int kHold = 3;                    // groups of eight inputs that a thread asks for at once
// A block has just less than half of a multiprocessor's shared memory, whatever it needs. Where
// there is much to do, two blocks share a multiprocessor: it takes both to keep enough weights on
// their way, and where one ends, a block of the next kernel takes its place. Where the weights are
// few there is one: the row is read half as often, and beside it a block of the next kernel waits
// from the beginning, its first weights there.
inline size_t BlockShared() { return std::min<size_t>(112 << 10, ThisGpu().block_shared); }
constexpr size_t kRingBytes = 80 << 10;  // of all warps
constexpr size_t kManyBytes = 24 << 20;

struct Call {
  View x;
  InputNorm norm;
  QuantisedProduct product[OneRowProducts::kMost];
  int begin[OneRowProducts::kMost + 1];  // the first tile of each, and the end
  int tiles;                             // gated: of each of the two
  int tile_rows;                         // kTile of the kernel
  OutputOp op;
  View sum;
};

// Stages of a warp's ring: small ones need more of them to keep as many bytes on their way.
template <typename Stage>
inline constexpr int kStages = std::min(4, int(kRingBytes / (kWarps * Stage::kBytes)));

// The row of inputs as a block holds it.
struct Input : links::Input {
  float* floats;  // LaneRow: before that, where there is a norm
};
// Bytes of each, for whole stages.
struct InputBytes {
  size_t q, scale, sum;

  __host__ __device__ InputBytes(int64_t cols, int64_t block) {
    constexpr int64_t kStage = 128 * kQuadsMost;
    const size_t quads = size_t((cols + kStage - 1) / kStage) * kQuadsMost;
    q = quads * Input::kPitch;
    scale = (quads * 128 / size_t(block) * 4 + 15) / 16 * 16;
    sum = quads * 128 / (block == 32 ? 32 : 16) * 2;
  }
  __host__ __device__ size_t all() const { return q + scale + sum; }
};

// What a warp works on: tile after tile, and of each one or two matrices.
struct Walk {
  int tile = static_cast<int>(blockIdx.x + gridDim.x * (threadIdx.x / 32));
  int gate = 0;

  __device__ void Next(const Call& call) {
    if (IsGate(call.op) && gate == 0) {
      gate = 1;
      return;
    }
    gate = 0;
    tile += static_cast<int>(gridDim.x) * kWarps;
  }
  __device__ int Which(const Call& call) const {
    if (IsGate(call.op)) return gate;
    int which = 0;
    while (tile >= call.begin[which + 1]) ++which;
    return which;
  }
  // The first row of the tile.
  __device__ int Row(const Call& call, int which) const {
    return (tile - (IsGate(call.op) ? 0 : call.begin[which])) * call.tile_rows;
  }
};

// What a lane copies of one plane: kRowBytes of each row of a tile for a stage, in groups of kGroup
// bytes that come to lie kPitch apart. Where it begins is found once for a tile; from one copy to
// the next it is a number of rows and bytes that all lanes share.
template <int kTile, int kRowBytes, int kGroup, int kPitch>
class PlaneCopies {
 public:
  __device__ __forceinline__ void Seek(const std::byte* plane, int64_t stride, int row) {
    from_ = plane + (row + Row()) * stride + At();
  }
  // rows: of the tile that there are. The stride is asked for again: registers are scarce.
  // kInTurn: one copy of the lanes after another, two of them on their way at a time.
  template <bool kInTurn = false>
  __device__ __forceinline__ void Ask(std::byte* to, int64_t row_stride, int step, int rows) const {
    const int stride = static_cast<int>(row_stride);
    const int offset = step * kRowBytes;
    to += (Row() * (kRowBytes / kGroup) + At() / kGroup) * kPitch + At() % kGroup;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int more_rows = kWide ? i * 32 / kPieces : i * (32 / kPieces);
      const int more = kWide ? i * 32 % kPieces * kPiece : 0;
      if (!kWide && more_rows + Row() >= kTile) break;
      const bool valid = more_rows + Row() < rows && offset + more + At() < stride;
      CopyAsync<kPiece>(to + (more_rows * (kRowBytes / kGroup) + more / kGroup) * kPitch,
                        from_ + more_rows * stride + more + offset, valid);
      if (kInTurn && i + 1 < kCopies) {
        CommitCopies();
        if (i > 0) WaitForCopies<1>();
      }
    }
  }

 private:
  static constexpr int kPiece = kRowBytes % 16 == 0 ? 16 : 8;
  static constexpr int kPieces = kRowBytes / kPiece;  // of a row
  static constexpr bool kWide = kPieces >= 32;        // a copy of all lanes stays in one row
  static constexpr int kCopies = (kTile * kPieces + 31) / 32;
  static_assert(kWide ? kPieces % 32 == 0 && 32 * kPiece % kGroup == 0 : 32 % kPieces == 0);

  static __device__ int Row() { return kWide ? 0 : Lane() / kPieces; }
  static __device__ int At() { return Lane() % (kWide ? 32 : kPieces) * kPiece; }
  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  const std::byte* from_;
};
// A plane that a type does not have.
template <int kTile, int kGroup, int kPitch>
class PlaneCopies<kTile, 0, kGroup, kPitch> {
 public:
  __device__ void Seek(const std::byte*, int64_t, int) {}
  template <bool kInTurn = false>
  __device__ void Ask(std::byte*, int64_t, int, int) const {}
};

// The weights of one warp, stage by stage.
template <DType kType, int kTile>
class Weights {
  using S = Stage<kType, kTile>;

 public:
  __device__ Weights(const Call& call, std::byte* ring, int steps)
      : call_(call), ring_(ring), steps_(steps) {
    FindTile();
  }

  // Asks for the next stage; for nothing behind the end.
  __device__ void Load() {
    if (walk_.tile < call_.tiles) {
      std::byte* to = ring_ + stage_ * S::kBytes;
      const QuantisedLayout& layout = *layout_;
      quants_.Ask(to, layout.quant_stride, step_, rows_);
      extra_.Ask(to + S::kExtra, layout.extra_stride, step_, rows_);
      sub_.Ask(to + S::kSub, layout.sub_stride, step_, rows_);
      scale_.Ask(to + S::kScale, layout.scale_stride, step_, rows_);
    }
    CommitCopies();
    if (++stage_ == kStages<S>) stage_ = 0;
    if (++step_ < steps_) return;
    step_ = 0;
    walk_.Next(call_);
    FindTile();
  }

 private:
  __device__ void FindTile() {
    if (walk_.tile >= call_.tiles) return;
    const int which = walk_.Which(call_);
    layout_ = &call_.product[which].weight.layout;
    const QuantisedLayout& layout = *layout_;
    const std::byte* data = call_.product[which].weight.data;
    const int row = walk_.Row(call_, which);
    rows_ = min(kTile, static_cast<int>(layout.rows) - row);
    quants_.Seek(data, layout.quant_stride, row);
    extra_.Seek(data + layout.extra, layout.extra_stride, row);
    sub_.Seek(data + layout.sub, layout.sub_stride, row);
    scale_.Seek(data + layout.scale, layout.scale_stride, row);
  }

  const Call& call_;
  std::byte* const ring_;
  const int steps_;  // stages of a row
  Walk walk_;
  int step_ = 0;
  int stage_ = 0;
  const QuantisedLayout* layout_ = nullptr;
  int rows_ = 0;
  PlaneCopies<kTile, S::kQuads * S::kQuantBytes, S::kQuantBytes, S::kQuantPitch> quants_;
  PlaneCopies<kTile, S::kQuads * S::kExtraBytes, S::kExtraBytes, S::kExtraPitch> extra_;
  PlaneCopies<kTile, S::kSubBytes, S::kSubBytes, S::kSubBytes> sub_;
  PlaneCopies<kTile, S::kScaleBytes, S::kScaleBytes, S::kScaleBytes> scale_;
};

// Reads, norms and quantises the row. A warp has 256 neighbours at a time.
template <DType kType>
class InputReader {
  static constexpr int kEarly = kHold - 1;  // groups of weights that registers are left for

 public:
  // Asks for the norm's weights, which no kernel writes: for those of the first 4,096 columns.
  __device__ explicit InputReader(const Call& call)
      : call_(call), cols_(static_cast<int>(call.x.cols)) {
    if (call_.norm.weight == nullptr) return;
#pragma unroll
    for (int j = 0; j < kEarly; ++j) {
      if (Column(j) < cols_) weights_[j].Load(call_.norm.weight + Column(j));
    }
  }

  __device__ __forceinline__ void Read(const Input& input) {
#pragma unroll 1
    for (int first = 0; first * kThreads * 8 < cols_; first += kHold) {
      EightFloats held[kHold];
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        if (Column(first + j) < cols_) held[j].Load(call_.x.data + Column(first + j));
      }
      if (call_.norm.weight != nullptr) Norm(input.floats, held);
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        if (WarpColumn(first + j) < cols_) {
          QuantiseInto<kType>(held[j], Column(first + j), cols_, input);
        }
      }
    }
    __syncthreads();
  }

 private:
  __device__ static int WarpColumn(int j) {
    return (j * kWarps + static_cast<int>(threadIdx.x) / 32) * 256;
  }
  __device__ static int Column(int j) {
    return WarpColumn(j) + static_cast<int>(threadIdx.x) % 32 * 8;
  }

  // All of the row is held.
  __device__ __forceinline__ void Norm(float* floats, EightFloats (&held)[kHold]) const {
    const LaneRow lanes(floats, cols_);
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (Column(j) >= cols_) break;
      lanes.Store(Column(j), held[j].Four(0));
      lanes.Store(Column(j) + 4, held[j].Four(1));
    }
    const float r = lanes.NormFactor(static_cast<int>(threadIdx.x), call_.norm.eps);
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (Column(j) >= cols_) break;
      EightFloats weights = weights_[j < kEarly ? j : 0];
      if (j >= kEarly) weights.Load(call_.norm.weight + Column(j));
#pragma unroll
      for (int i = 0; i < 8; ++i) held[j].of[i] = (held[j].of[i] * r) * weights.of[i];
      if (blockIdx.x == 0 && call_.norm.h.data != nullptr) {
        held[j].Store(call_.norm.h.data + Column(j));
      }
    }
  }

  const Call& call_;
  const int cols_;
  EightFloats weights_[kEarly];
};

// What becomes of the outputs of a tile: a lane of each row has them.
struct Outputs {
  float up = 0;      // of a gate
  float before = 0;  // of a sum

  // What is read is asked for before the tile is computed.
  __device__ __forceinline__ void Begin(const Call& call, int row, bool mine) {
    if (call.op == OutputOp::kAdd && mine) before = call.sum.data[row];
  }
  __device__ __forceinline__ void Store(const Call& call, const Walk& walk, int which, int row,
                                        float total) {
    const QuantisedProduct& product = call.product[which];
    const float y = product.bias != nullptr ? total + product.bias[row] : total;
    if (walk.gate != 0) {
      product.y.data[row] = Gated(call.op, y, up);
      return;
    }
    product.y.data[row] = y;
    up = y;
    if (call.op == OutputOp::kAdd) call.sum.data[row] = before + y;
  }
};

template <DType kType, int kTile>
__global__ void __launch_bounds__(kThreads, 2) OneRowKernel(const __grid_constant__ Call call) {
  using S = Stage<kType, kTile>;
  constexpr int kQuads = S::kQuads;
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  extern __shared__ __align__(16) std::byte shared[];
  // At once: what the next kernel does before it waits takes 2 to 3 us.
  LetNextStart();
  const int units = static_cast<int>(call.x.cols / 32);
  const int steps = CeilDiv(units, 4 * kQuads);
  std::byte* ring = shared + threadIdx.x / 32 * kStages<S> * S::kBytes;
  Weights<kType, kTile> weights(call, ring, steps);
  InputReader<kType> reader(call);
  const InputBytes bytes(call.x.cols, kBlock);
  std::byte* at = shared + kWarps * kStages<S> * S::kBytes;
  const Input input = {{at, reinterpret_cast<float*>(at + bytes.q),
                        reinterpret_cast<int16_t*>(at + bytes.q + bytes.scale)},
                       reinterpret_cast<float*>(at + bytes.all())};
  const int lane = threadIdx.x % 32;
  Walk walk;
  Outputs outputs;
  float total = 0;
  int step = 0;
  int stage = 0;
  // A stage is asked for kStages turns before its own. This code runs once, and the fewer
  // instructions it has, the sooner they are here.
#pragma unroll 1
  for (int turn = -kStages<S>; turn <= 0 || walk.tile < call.tiles; ++turn) {
    if (turn < 0) {
      weights.Load();
      continue;
    }
    if (turn == 0) {
      WaitForInputs();
      reader.Read(input);
      if (walk.tile >= call.tiles) return;
    }
    const int which = walk.Which(call);
    const int row = walk.Row(call, which) + lane / kQuads;
    const bool mine = lane % kQuads == 0 && row < call.product[which].weight.layout.rows;
    if (step == 0) outputs.Begin(call, row, mine);
    WaitForCopies<kStages<S> - 1>();
    __syncwarp();
    Links<kType, kTile> links;
    links.Make(ring + stage * S::kBytes, GridOf(call.product[which].weight), input,
               step * kQuads + lane % kQuads);
    __syncwarp();
    weights.Load();
    if (++stage == kStages<S>) stage = 0;
    total = links.Chain(total, units - step * 4 * kQuads);
    if (++step < steps) continue;
    if (mine) outputs.Store(call, walk, which, row, total);
    total = 0;
    step = 0;
    walk.Next(call);
  }
}

template <DType kType, int kTile>
void LaunchTiles(Stream stream, const Call& call, int blocks) {
  const auto kernel = OneRowKernel<kType, kTile>;
  static const bool allowed = (AllowShared(kernel, BlockShared()), true);
  (void)allowed;
  LaunchEarly(kernel, unsigned(std::min(call.tiles, blocks)), kThreads, BlockShared(), stream,
              call);
}

// The call with its products cut into tiles of so many rows.
inline Call InTiles(Call call, int rows) {
  call.tile_rows = rows;
  for (size_t i = 0; i < OneRowProducts::kMost; ++i) {
    const int64_t all = call.product[i].weight.layout.rows;
    call.begin[i + 1] = call.begin[i] + int(CeilDiv<int64_t>(all, rows));
  }
  call.tiles = call.begin[IsGate(call.op) ? 1 : OneRowProducts::kMost];
  return call;
}

template <DType kType>
void Launch(Stream stream, const Call& call) {
  size_t bytes = 0;
  for (const QuantisedProduct& product : call.product) bytes += product.weight.layout.bytes;
  const int blocks = (bytes > kManyBytes ? 2 : 1) * ThisGpu().multiprocessors;
  const Call tall = InTiles(call, kTallTile), flat = InTiles(call, kFlatTile);
  // Stages of the warp with the most of them.
  const int quads = int(CeilDiv<int64_t>(call.x.cols, 128));
  const auto longest = [&](const Call& cut) {
    return CeilDiv(cut.tiles, blocks * kWarps) * CeilDiv(quads, 32 / cut.tile_rows);
  };
  if (longest(flat) < longest(tall)) {
    LaunchTiles<kType, kFlatTile>(stream, flat, blocks);
  } else {
    LaunchTiles<kType, kTallTile>(stream, tall, blocks);
  }
}

}  // namespace one

// By the size of blocks, in files of their own.
void LaunchOne32(Stream stream, DType type, const one::Call& call);
void LaunchOne256(Stream stream, DType type, const one::Call& call);

}  // namespace reprise::cuda
