// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <climits>

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
inline size_t BlockShared() { return ThisGpu().half_shared(); }
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
  bool hold_next;
  View sum;
  int blocks;  // that have them
};

// Stages of a warp's ring: small ones need more of them to keep as many bytes on their way. More
// than three are asked for in front of what the kernel before still needs.
template <typename Stage>
inline constexpr int kStages = std::min(3, int(kRingBytes / (kWarps * Stage::kBytes)));

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
  int tile;
  int gate = 0;

  __device__ Walk(const Call& call, int warp)
      : tile(static_cast<int>(blockIdx.x) + call.blocks * warp) {}

  __device__ void Next(const Call& call) {
    if (IsGate(call.op) && gate == 0) {
      gate = 1;
      return;
    }
    gate = 0;
    tile += call.blocks * kWarps;
  }
  __device__ int Which(const Call& call) const {
    if (IsGate(call.op)) return gate;
    int which = 0;
    while (tile >= call.begin[which + 1]) ++which;
    return which;
  }
  template <DType kType>
  __device__ const uint2* Grid(const Call& call) const {
    return UnitTraits<kType>::kGrid ? GridOf(call.product[Which(call)].weight) : nullptr;
  }
  // The first row of the tile.
  __device__ int Row(const Call& call, int which) const {
    return (tile - (IsGate(call.op) ? 0 : call.begin[which])) * call.tile_rows;
  }
};

// Of so many rows, in one instruction.
__device__ __forceinline__ uint64_t Bytes(int rows, unsigned stride) {
  uint64_t bytes;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(bytes) : "r"(rows), "r"(stride));
  return bytes;
}

// What a lane copies of quants or extras, stage after stage: kQuads quads of kGroup bytes of each
// row of a tile. Where it begins is found once for a tile.
template <int kTile, int kQuads, int kGroup>
class QuadCopies {
 public:
  __device__ __forceinline__ void Seek(const std::byte* plane, unsigned stride, int row) {
    from_ = plane + Bytes(row + Row(), stride) + At();
  }
  // left, rows: quads of the row from here on and rows of the tile that there are.
  __device__ __forceinline__ void Ask(std::byte* to, unsigned stride, int left, int rows) {
    const std::byte* from = from_;
    const int quad = Row() * kQuads + At() / kGroup;
    const int first = quad * kGroup + (At() % kGroup ^ Turn(quad));
#pragma unroll
    for (int row = 0; row < kTile; row += kRows) {
#pragma unroll
      for (int more = 0; more < kRowBytes; more += 32 * kPiece) {
        const bool valid = row + Row() < rows && (At() + more) / kGroup < left;
        const int quads = row * kQuads + more / kGroup;
        CopyAsync<kPiece>(to + quads * kGroup + (first ^ Turn(quads)), from + more, valid);
      }
      from += kRows * stride;
    }
    from_ += kRowBytes;
  }

 private:
  static constexpr int kPiece = 16;
  static constexpr int kRowBytes = kQuads * kGroup;
  static constexpr int kPieces = std::min(32, kRowBytes / kPiece);  // of a row in one copy
  static constexpr int kRows = 32 / kPieces;                        // of a copy of all lanes
  static_assert(32 % kPieces == 0 && kTile % kRows == 0 && kRowBytes % (kPieces * kPiece) == 0);
  static_assert(kGroup % kPiece == 0 && 32 * kPiece % kGroup == 0);

  // As of links::PlaneCopies.
  static __device__ constexpr int Turn(int quads) { return links::TurnOf<kGroup>(quads) * 16; }
  static __device__ int Row() { return Lane() / kPieces; }
  static __device__ int At() { return Lane() % kPieces * kPiece; }
  static __device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

  const std::byte* from_;
};
// A plane that a type does not have.
template <int kTile, int kQuads>
class QuadCopies<kTile, kQuads, 0> {
 public:
  __device__ void Seek(const std::byte*, unsigned, int) {}
  __device__ void Ask(std::byte*, unsigned, int, int) {}
};

// The same of scales, of sub-blocks and of blocks: some lanes have these, some those, and all of
// them are one copy. What there is not stays as it was or becomes zeros.
template <DType kType, int kTile>
class ScaleCopies {
  using S = Stage<kType, kTile>;

 public:
  __device__ __forceinline__ ScaleCopies()
      : to_(IsSub() ? S::kSub + Piece() * 16 : S::kScale + Piece() * kScalePiece),
        step_(IsSub() ? S::kSubBytes : S::kScaleBytes) {
    asm volatile("" : "+r"(to_), "+r"(step_));  // in registers, not computed anew
  }
  __device__ __forceinline__ void Seek(const QuantisedMatrix& matrix, int row, int rows) {
    const QuantisedLayout& layout = matrix.layout;
    const int of_tile = IsSub() ? Piece() / kSubPieces : Piece() / kScalePieces;
    const int at = IsSub() ? Piece() % kSubPieces * 16 : Piece() % kScalePieces * kScalePiece;
    const auto stride = static_cast<unsigned>(IsSub() ? layout.sub_stride : layout.scale_stride);
    from_ = matrix.data + (IsSub() ? layout.sub : layout.scale) + Bytes(row + of_tile, stride) + at;
    const int quad = IsSub() ? at * S::kQuads / kSubBytes : at * S::kQuads / S::kScaleBytes;
    quad_ = of_tile < min(kTile, rows) ? quad : INT_MAX;
  }
  __device__ __forceinline__ void Ask(std::byte* stage, int left) {
    if constexpr (kScalePiece == 16) {
      CopyAsync<16>(stage + to_, from_, quad_ < left);
    } else {
      if (quad_ < left && IsSub()) CopyAsync<16>(stage + to_, from_);
      if (quad_ < left && !IsSub()) CopyAsync<kScalePiece>(stage + to_, from_);
    }
    from_ += static_cast<unsigned>(step_);
  }

 private:
  static constexpr int kSubBytes = std::max(16, S::kSubBytes);
  static constexpr int kSubPieces = kSubBytes / 16;  // of a row
  static constexpr int kScalePiece = S::kScaleBytes % 16 == 0 ? 16 : 8;
  static constexpr int kScalePieces = S::kScaleBytes / kScalePiece;
  static constexpr int kSubs = kTile * S::kSubBytes / 16;
  static constexpr int kAll = kSubs + kTile * kScalePieces;
  static_assert(kAll <= 32 && S::kSubBytes % 16 == 0);

  static __device__ bool IsSub() { return Lane() < kSubs; }
  static __device__ int Piece() { return IsSub() ? Lane() : Lane() - kSubs; }
  // Lanes that would have nothing do what others do: that takes no branch.
  static __device__ int Lane() {
    return static_cast<int>(threadIdx.x) % 32 % (kScalePiece == 16 ? kAll : 32);
  }

  const std::byte* from_;
  int quad_;  // of a stage: the first that the piece belongs to
  int to_;    // bytes of a stage before it
  int step_;  // bytes from one stage to the next
};

// The weights of one warp, stage by stage.
template <DType kType, int kTile>
class Weights {
  using S = Stage<kType, kTile>;

 public:
  // quads: of a row.
  __device__ Weights(const Call& call, const Walk& walk, int quads)
      : call_(call), quads_(quads), walk_(walk), left_(quads) {
    FindTile();
  }

  // Asks for the next stage; for nothing behind the end.
  __device__ __forceinline__ void Load(std::byte* to) {
    if (walk_.tile < call_.tiles) {
      const QuantisedLayout& layout = call_.product[0].weight.layout;  // of a row: one for all
      quants_.Ask(to, static_cast<unsigned>(layout.quant_stride), left_, rows_);
      extra_.Ask(to + S::kExtra, static_cast<unsigned>(layout.extra_stride), left_, rows_);
      scales_.Ask(to, left_);
    }
    CommitCopies();
    left_ -= S::kQuads;
    if (left_ > 0) return;
    left_ = quads_;
    walk_.Next(call_);
    FindTile();
  }

 private:
  __device__ __forceinline__ void FindTile() {
    if (walk_.tile >= call_.tiles) return;
    const int which = walk_.Which(call_);
    const QuantisedMatrix& matrix = call_.product[which].weight;
    const QuantisedLayout& layout = matrix.layout;
    const int row = walk_.Row(call_, which);
    rows_ = static_cast<int>(layout.rows) - row;
    quants_.Seek(matrix.data, static_cast<unsigned>(layout.quant_stride), row);
    extra_.Seek(matrix.data + layout.extra, static_cast<unsigned>(layout.extra_stride), row);
    scales_.Seek(matrix, row, rows_);
  }

  const Call& call_;
  const int quads_;
  Walk walk_;
  int left_;  // quads of the row that were not asked for
  int rows_ = 0;
  QuadCopies<kTile, S::kQuads, S::kQuantBytes> quants_;
  QuadCopies<kTile, S::kQuads, S::kExtraBytes> extra_;
  ScaleCopies<kType, kTile> scales_;
};

// Reads, norms and quantises the row. A warp has 256 neighbours at a time.
template <DType kType>
class InputReader {
 public:
  // Brings the norm's weights, which no kernel writes, as near as they come without registers: a
  // thread that held them would hold them, for all the compiler knows, to the end.
  __device__ InputReader(const Call& call, int warp)
      : call_(call), cols_(static_cast<int>(call.x.cols)), warp_(warp) {
    if (call_.norm.weight == nullptr) return;
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (Column(j) < cols_) PrefetchL2(call_.norm.weight + Column(j));
    }
  }

  __device__ __forceinline__ void Read(const Input& input) {
    EightFloats held[kHold];
    Load(0, held);
    if (call_.norm.weight != nullptr) Norm(input.floats, held);
#pragma unroll 1
    for (int first = 0;; first += kHold) {
      EightFloats next[kHold];  // on their way meanwhile
      Load(first + kHold, next);
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        if (WarpColumn(first + j) < cols_) {
          QuantiseInto<kType>(held[j], Column(first + j), cols_, input);
        }
      }
      if ((first + kHold) * kThreads * 8 >= cols_) break;
#pragma unroll
      for (int j = 0; j < kHold; ++j) held[j] = next[j];
    }
    __syncthreads();
  }

 private:
  __device__ int WarpColumn(int j) const { return (j * kWarps + warp_) * 256; }
  __device__ int Column(int j) const {
    return WarpColumn(j) + static_cast<int>(threadIdx.x) % 32 * 8;
  }
  // Zeros behind the end.
  __device__ __forceinline__ void Load(int first, EightFloats (&held)[kHold]) const {
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      held[j] = {};
      if (Column(first + j) < cols_) held[j].Load(call_.x.data + Column(first + j));
    }
  }

  // All of the row is held.
  __device__ __forceinline__ void Norm(float* floats, EightFloats (&held)[kHold]) const {
    EightFloats weights[kHold] = {};
#pragma unroll
    for (int j = 0; j < kHold; ++j) {
      if (Column(j) < cols_) weights[j].Load(call_.norm.weight + Column(j));
    }
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
#pragma unroll
      for (int i = 0; i < 8; ++i) held[j].of[i] = (held[j].of[i] * r) * weights[j].of[i];
      if (blockIdx.x == 0 && call_.norm.h.data != nullptr) {
        held[j].Store(call_.norm.h.data + Column(j));
      }
    }
  }

  const Call& call_;
  const int cols_;
  const int warp_;
};

// What becomes of the outputs of a tile: a lane of each row has them.
struct Outputs {
  int which = 0;
  int row = 0;
  bool mine = false;
  float up = 0;      // of a gate
  float before = 0;  // of a sum

  // What is read is asked for before the tile is computed. A lane has row `of_tile`; or `has` not,
  // beside another one that has.
  __device__ __forceinline__ void Begin(const Call& call, const Walk& walk, int of_tile, bool has) {
    which = walk.Which(call);
    row = walk.Row(call, which) + of_tile;
    mine = has && row < static_cast<int>(call.product[which].weight.layout.rows);
    if (call.op == OutputOp::kAdd && mine) before = call.sum.data[row];
  }
  __device__ __forceinline__ void Store(const Call& call, float total) {
    if (!mine) return;
    const QuantisedProduct& product = call.product[which];
    const float y = product.bias != nullptr ? total + product.bias[row] : total;
    if (IsGate(call.op) && which != 0) {
      product.y.data[row] = Gated(call.op, y, up);
      return;
    }
    product.y.data[row] = y;
    up = y;
    if (call.op == OutputOp::kAdd) call.sum.data[row] = before + y;
  }
};

template <DType kType, int kTile>
__device__ __forceinline__ void RunTiles(const Call& call) {
  using S = Stage<kType, kTile>;
  constexpr int kQuads = S::kQuads;
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  extern __shared__ __align__(128) std::byte shared[];
  // At once: what the next kernel does before it waits takes 2 to 3 us.
  if (!call.hold_next) LetNextStart();
  // One for all lanes, which the compiler cannot see otherwise.
  const int warp = __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = threadIdx.x % 32;
  const int units = static_cast<int>(call.x.cols / 32);
  const int steps = CeilDiv(units, 4 * kQuads);
  constexpr int kRing = kStages<S> * S::kBytes;
  Walk walk(call, warp);
  Weights<kType, kTile> weights(call, walk, CeilDiv(units, 4));
  InputReader<kType> reader(call, warp);
  const InputBytes bytes(call.x.cols, kBlock);
  std::byte* at = shared + kWarps * kRing;
  const Input input = {{at, reinterpret_cast<float*>(at + bytes.q),
                        reinterpret_cast<int16_t*>(at + bytes.q + bytes.scale)},
                       reinterpret_cast<float*>(at + bytes.all())};
  links::Place<kType, kTile> place(lane % kQuads);
  place.Keep();
  Outputs outputs;
  float total = 0;
  int step = 0;
  int stage = warp * kRing;
  // A stage is asked for kStages turns before its own. This code runs once, and the fewer
  // instructions it has, the sooner they are here.
#pragma unroll 1
  for (int turn = -kStages<S>;; ++turn) {
    if (turn == 0) {
      WaitForInputs();
      if (call.hold_next) LetNextStart();
      reader.Read(input);
      if (walk.tile >= call.tiles) return;
    }
    Links<kType, kTile> links = {};
    if (turn >= 0) {
      if (step == 0) outputs.Begin(call, walk, lane / kQuads, lane % kQuads == 0);
      WaitForCopies<kStages<S> - 1>();
      __syncwarp();
      links.Make(shared, stage, walk.Grid<kType>(call), input.From<kType>(step * kQuads), place);
      __syncwarp();
    }
    weights.Load(shared + stage);
    stage += S::kBytes;
    if (stage == (warp + 1) * kRing) stage -= kRing;
    if (turn < 0) continue;
    total = links.Chain(total, units - step * 4 * kQuads);
    if (++step < steps) continue;
    outputs.Store(call, total);
    total = 0;
    step = 0;
    walk.Next(call);
    if (walk.tile >= call.tiles) return;
  }
}

template <DType kType, int kTile>
__global__ void __launch_bounds__(kThreads, 2) OneRowKernel(const __grid_constant__ Call call) {
  RunTiles<kType, kTile>(call);
}

template <auto kKernel, typename... Calls>
void LaunchBlocks(Stream stream, int blocks, const Calls&... calls) {
  LaunchEarly(kKernel, unsigned(blocks), kThreads, BlockShared(), stream, calls...);
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

// In the tiles that are done first by so many blocks.
inline Call ForBlocks(const Call& call, int blocks) {
  const Call tall = InTiles(call, kTallTile), flat = InTiles(call, kFlatTile);
  // Stages of the warp with the most of them.
  const int quads = int(CeilDiv<int64_t>(call.x.cols, 128));
  const auto longest = [&](const Call& cut) {
    return CeilDiv(cut.tiles, blocks * kWarps) * CeilDiv(quads, 32 / cut.tile_rows);
  };
  Call cut = longest(flat) < longest(tall) ? flat : tall;
  cut.blocks = std::min(cut.tiles, blocks);
  return cut;
}

inline size_t BytesOf(const Call& call) {
  size_t bytes = 0;
  for (const QuantisedProduct& product : call.product) bytes += product.weight.layout.bytes;
  return bytes;
}
// For so many bytes.
inline int BlocksFor(size_t bytes) {
  return (bytes > kManyBytes ? 2 : 1) * ThisGpu().multiprocessors;
}

template <DType kType>
void Launch(Stream stream, const Call& call) {
  const Call cut = ForBlocks(call, BlocksFor(BytesOf(call)));
  if (cut.tile_rows == kTallTile) {
    LaunchBlocks<OneRowKernel<kType, kTallTile>>(stream, cut.blocks, cut);
  } else {
    LaunchBlocks<OneRowKernel<kType, kFlatTile>>(stream, cut.blocks, cut);
  }
}

}  // namespace one

// In a file of its own.
void LaunchOneOf(Stream stream, DType type, const one::Call& call);

}  // namespace reprise::cuda
