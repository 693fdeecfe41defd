// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/forms/one.cuh"

// Products of one row where every warp of the GPU has at most one tile, and a tile is one stage:
// the layers of small models. What a kernel does before and behind its weights takes longer there
// than the weights do, so there is no ring and no walk; blocks are one for a multiprocessor and as
// large as they need, so that those of the next kernels wait beside them with their weights there.
namespace reprise::cuda {
namespace one {

using links::PlaneCopies;

constexpr int kSmallWarps = 16;
// Of a block, at least: beside two of them there is room for the recurrence that comes between, and
// not for a third, whose weights would come too early. A multiprocessor has 228 KiB, of which every
// block takes one more; a recurrence asks for 30 at most.
constexpr size_t kSmallShared = 80 << 10;
static_assert(2 * (kSmallShared + 1024) + (31 << 10) <= 228 << 10);
static_assert(3 * (kSmallShared + 1024) > 228 << 10);

// Rows of a tile that is one stage; 0: no row of so many columns is.
inline int SmallTile(int64_t cols) {
  return cols <= 1024 ? 4 : cols <= 2048 ? 2 : cols <= 4096 ? 1 : 0;
}

struct SmallPart {
  const std::byte* quants;
  const std::byte* extra;
  const std::byte* sub;
  const std::byte* scale;
  const uint2* grid;
  float* y;
  const float* bias;
  int rows;
  int begin;  // its first tile; of a gate 0 for both
};
struct SmallCall {
  const float* x;
  int cols;
  int parts;
  int quant_stride, extra_stride, sub_stride, scale_stride;  // one for all
  int each, more;  // tiles of a block, and blocks that have one more; of a gate, of each matrix
  SmallPart part[OneRowProducts::kMost];
  const float* norm;
  float* h;
  float eps;
  OutputOp op;
  bool hold_next;
  float* sum;
};

// Reads, norms and quantises the row, of which a thread has eight neighbours. All of this runs once
// in a kernel, and its instructions come from afar: blocks have threads enough, so that none of it
// is there twice.
template <DType kType>
class SmallReader {
 public:
  static constexpr int kColumns = 256;  // of a warp

  // Asks for the norm's weights, which no kernel writes.
  __device__ __forceinline__ explicit SmallReader(const SmallCall& call)
      : call_(call), column_(8 * static_cast<int>(threadIdx.x)) {
    if (call_.norm != nullptr && column_ < call_.cols) weights_.Load(call_.norm + column_);
  }
  __device__ __forceinline__ void Read(const Input& input) {
    EightFloats held;
    if (column_ < call_.cols) held.Load(call_.x + column_);
    if (call_.norm != nullptr) Norm(input.floats, &held);
    if (column_ / kColumns * kColumns < call_.cols) {
      QuantiseInto<kType>(held, column_, call_.cols, input);
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void Norm(float* floats, EightFloats* held) const {
    const LaneRow lanes(floats, call_.cols);
    if (column_ < call_.cols) {
      lanes.Store(column_, held->Four(0));
      lanes.Store(column_ + 4, held->Four(1));
    }
    const float r = lanes.NormFactor(static_cast<int>(threadIdx.x), call_.eps);
    if (column_ >= call_.cols) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) held->of[i] = (held->of[i] * r) * weights_.of[i];
    if (blockIdx.x == 0 && call_.h != nullptr) held->Store(call_.h + column_);
  }

  const SmallCall& call_;
  const int column_;
  EightFloats weights_;
};

template <DType kType, int kTile>
__global__ void __launch_bounds__(32 * kSmallWarps, 2)
    SmallRowKernel(const __grid_constant__ SmallCall call) {
  using S = Stage<kType, kTile>;
  constexpr int kQuads = S::kQuads;
  constexpr int kBlock = UnitTraits<kType>::kBlock256 ? 256 : 32;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ float ups[kSmallWarps / 2][kTile];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = threadIdx.x % 32;
  const int warps = static_cast<int>(blockDim.x) / 32, block = static_cast<int>(blockIdx.x);
  const bool gated = IsGate(call.op);
  const int place = gated ? warp / 2 : warp;
  const int tile = block * call.each + min(block, call.more) + place;
  const bool works = place < call.each + (block < call.more ? 1 : 0);
  int which = gated ? warp % 2 : 0;
  if (!gated) {
    while (which + 1 < call.parts && tile >= call.part[which + 1].begin) ++which;
  }
  const SmallPart& part = call.part[which];
  const int first = (tile - part.begin) * kTile;
  std::byte* stage = shared + warp * S::kBytes;
  if (works) {
    const int rows = min(kTile, part.rows - first);
    PlaneCopies<kTile, kQuads * S::kQuantBytes, S::kQuantBytes>::template Ask<true>(
        part.quants, call.quant_stride, first, rows, lane, stage);
    PlaneCopies<kTile, kQuads * S::kExtraBytes, S::kExtraBytes>::template Ask<true>(
        part.extra, call.extra_stride, first, rows, lane, stage + S::kExtra);
    PlaneCopies<kTile, S::kSubBytes, S::kSubBytes>::template Ask<true>(
        part.sub, call.sub_stride, first, rows, lane, stage + S::kSub);
    PlaneCopies<kTile, S::kScaleBytes, S::kScaleBytes>::template Ask<true>(
        part.scale, call.scale_stride, first, rows, lane, stage + S::kScale);
  }
  CommitCopies();
  if (!call.hold_next) LetNextStart();  // not before: its weights come behind these
  SmallReader<kType> reader(call);
  const InputBytes bytes(call.cols, kBlock);
  std::byte* at = shared + warps * S::kBytes;
  const Input input = {{at, reinterpret_cast<float*>(at + bytes.q),
                        reinterpret_cast<int16_t*>(at + bytes.q + bytes.scale)},
                       reinterpret_cast<float*>(at + bytes.all())};
  const int row = first + lane / kQuads;
  const bool mine = works && lane % kQuads == 0 && row < part.rows;
  WaitForInputs();
  if (call.hold_next) LetNextStart();
  reader.Read(input);
  float before = 0;  // asked for here, where there are registers for it
  if (call.op == OutputOp::kAdd && mine) before = call.sum[row];
  WaitForCopies<0>();
  __syncwarp();
  float y = 0;
  if (works) {
    // Short code is sooner here than long code is quicker.
    constexpr int kAtOnce = UnitTraits<kType>::kBytes ? 2 : 4;
    Links<kType, kTile, kAtOnce> links;
    links.Make(shared, warp * S::kBytes, part.grid, input,
               links::Place<kType, kTile>(lane % kQuads));
    if constexpr (UnitTraits<kType>::kBlock256) {
      __syncwarp();
      y = links.ChainInRoom(stage, call.cols / 32);
    } else {
      y = links.Chain(0, call.cols / 32);
    }
  }
  if (mine && part.bias != nullptr) y = y + part.bias[row];
  if (gated) {
    if (mine && which == 0) ups[place][lane / kQuads] = y;
    __syncthreads();
    if (mine && which == 1) y = Gated(call.op, y, ups[place][lane / kQuads]);
  }
  if (!mine) return;
  part.y[row] = y;
  if (call.op == OutputOp::kAdd) call.sum[row] = before + y;
}

template <DType kType, int kTile>
bool LaunchSmallTiles(Stream stream, const Call& one) {
  using S = Stage<kType, kTile>;
  const bool gated = IsGate(one.op);
  const QuantisedLayout& layout = one.product[0].weight.layout;
  SmallCall call = {};
  call.x = one.x.data;
  call.cols = int(one.x.cols);
  call.quant_stride = int(layout.quant_stride);
  call.extra_stride = int(layout.extra_stride);
  call.sub_stride = int(layout.sub_stride);
  call.scale_stride = int(layout.scale_stride);
  call.norm = one.norm.weight;
  call.h = one.norm.h.data;
  call.eps = one.norm.eps;
  call.op = one.op;
  call.hold_next = one.hold_next;
  call.sum = one.sum.data;
  int64_t tiles = 0;
  for (size_t i = 0; i < OneRowProducts::kMost; ++i) {
    const QuantisedProduct& product = one.product[i];
    const QuantisedLayout& its = product.weight.layout;
    if (its.rows == 0) continue;
    const std::byte* data = product.weight.data;
    call.part[call.parts++] = {data,
                               data + its.extra,
                               data + its.sub,
                               data + its.scale,
                               GridOf(product.weight),
                               product.y.data,
                               product.bias,
                               int(its.rows),
                               gated ? 0 : int(tiles)};
    if (!gated || i == 0) tiles += CeilDiv<int64_t>(its.rows, kTile);
  }
  const int blocks = int(std::min<int64_t>(tiles, ThisGpu().multiprocessors));
  call.each = int(tiles / blocks);
  call.more = int(tiles % blocks);
  const int working = (call.each + (call.more > 0 ? 1 : 0)) * (gated ? 2 : 1);
  const int readers = int(CeilDiv<int64_t>(one.x.cols, SmallReader<kType>::kColumns));
  const int warps = std::max(working, readers);
  if (warps > kSmallWarps) return false;
  const int64_t block = UnitTraits<kType>::kBlock256 ? 256 : 32;
  const size_t floats = call.norm != nullptr ? size_t(LaneRow::Floats(call.cols)) * 4 : 0;
  const size_t bytes = size_t(warps) * S::kBytes + InputBytes(call.cols, block).all() + floats;
  const size_t room = BlockShared();
  if (bytes > room) return false;
  const auto kernel = SmallRowKernel<kType, kTile>;
  LaunchEarly(kernel, unsigned(blocks), 32 * warps, std::max(bytes, kSmallShared), stream, call);
  return true;
}

// False, and nothing is done: this call is no such.
template <DType kType>
bool LaunchSmall(Stream stream, const Call& call) {
  if (!ThisGpu().early_launch) return false;
  const int rows = SmallTile(call.x.cols);
  return rows == 4   ? LaunchSmallTiles<kType, 4>(stream, call)
         : rows == 2 ? LaunchSmallTiles<kType, 2>(stream, call)
         : rows == 1 ? LaunchSmallTiles<kType, 1>(stream, call)
                     : false;
}

}  // namespace one

// In a file of its own.
bool LaunchSmallOf(Stream stream, DType type, const one::Call& call);

}  // namespace reprise::cuda
