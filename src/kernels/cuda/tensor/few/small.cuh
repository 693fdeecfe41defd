// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/joined/riders.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/few/product_few.h"
#include "kernels/cuda/tensor/mma.cuh"

// Products of one row with small matrices, whatever form their weights have (Pieces).
//
// What a kernel does before and behind its weights takes longer here than the weights do. So all of
// them are asked for before the kernel in front has ended, one piece (eight or 16 rows of weights,
// one slice of K) a warp; blocks are one for a multiprocessor and as large as they need, so that
// those of the next kernel wait beside them with their pieces there. And the code is short: it runs
// once, and comes from memory as the weights do. So do the operands of the launch.
namespace reprise::cuda::small {

using reference::kTensorSlice;

constexpr int kWarpsMost = 16;
// Groups of four inputs that a thread has, at most; behind a norm there are its weights, too.
template <bool kNorm>
constexpr int kHold = kNorm ? 2 : 4;

struct Part {
  const void* weight;
  float* out;
  const float* bias;
  int rows;
  int begin;  // its first tile
  float scale;
  bool other;  // its weights have the second of two forms
};
struct FloatPart {
  const float* weight;
  const float* bias;
  float* out;
  int begin;  // its first row
};
// Products of one row. Tiles lie side by side in a block; of a gate those of the two matrices.
struct Call {
  const float* x;
  int cols;
  int float_blocks;  // that have rows of F32; behind them those with tiles
  int each, more;    // tiles of a block, and blocks that have one more; of a gate, of each matrix
  Part part[FewProducts::kMost];
  const float* norm;
  float* h;
  float eps;
  OutputOp op;  // of a gate
  bool hold_next;
  float* sum;
  int parts;
  int float_rows;
  FloatPart floats[FewProducts::kMost];
};

// A block is [32, slices, tiles side by side] threads.
__device__ inline int Thread() {
  return static_cast<int>(threadIdx.x + 32 * (threadIdx.y + blockDim.y * threadIdx.z));
}
__device__ inline int Threads() { return static_cast<int>(32 * blockDim.y * blockDim.z); }

// The word of two neighbours, the first at `column`: a lane of the products finds what it needs of
// two steps in four neighbouring words.
__device__ __forceinline__ int WordOf(int column) {
  const int pair = column % 32 / 2;
  return column / 32 * 16 + pair % 4 * 4 + pair / 8 * 2 + pair / 4 % 2;
}
__device__ __forceinline__ void StoreRounded(uint32_t* rounded, int column, const float4& x,
                                             float inverse) {
  uint32_t* to = rounded + WordOf(column);
  to[0] = Pack2<Half::kF16>(x.x * inverse, x.y * inverse);
  to[4] = Pack2<Half::kF16>(x.z * inverse, x.w * inverse);
}

__device__ __forceinline__ float Largest(const float4& x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// A row that has to be scaled; the whole block calls. Rare, so it may take its time.
inline __device__ __noinline__ float RoundScaled(const Call& call, float r, uint32_t* rounded) {
  const auto at = [&](int i) {
    const float4 four = *reinterpret_cast<const float4*>(call.x + i);
    if (call.norm == nullptr) return four;
    return Normed(four, r, *reinterpret_cast<const float4*>(call.norm + i));
  };
  float largest = 0;
  for (int i = 0; i < call.cols; i += 4) largest = fmaxf(largest, Largest(at(i)));
  const float scale = RowScale(largest);
  for (int i = 4 * Thread(); i < call.cols; i += 4 * Threads()) {
    StoreRounded(rounded, i, at(i), 1 / scale);
  }
  __syncthreads();
  return scale;
}

// The row, and the weights of its norm, as a thread has them: groups of four.
template <bool kNorm, int kGroups>
class Row {
 public:
  // Before the wait.
  __device__ __forceinline__ explicit Row(const Call& call) {
    if constexpr (kNorm) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        if (Column(j) < call.cols) weight_[j] = LoadFour(call.norm + Column(j));
      }
    }
  }
  // Rounds it; gives its scale. Where there are rows of F32, floats is the row for them.
  __device__ __forceinline__ float Round(const Call& call, float* floats, uint32_t* rounded) {
    float4 x[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (Column(j) < call.cols) x[j] = LoadFour(call.x + Column(j));
    }
    float r = 1;
    if constexpr (kNorm) {
      const LaneRow lanes(floats, call.cols);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        if (Column(j) < call.cols) lanes.Store(Column(j), x[j]);
      }
      r = lanes.NormFactor(Thread(), call.eps);
    }
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (Column(j) >= call.cols) break;
      if constexpr (kNorm) {
        x[j] = Normed(x[j], r, weight_[j]);
        *reinterpret_cast<float4*>(floats + Column(j)) = x[j];
        if (blockIdx.x == 0) *reinterpret_cast<float4*>(call.h + Column(j)) = x[j];
      }
      largest = fmaxf(largest, Largest(x[j]));
      StoreRounded(rounded, Column(j), x[j], 1.0f);
    }
    if (__syncthreads_or(largest >= 65520.0f) == 0) return 1;
    return RoundScaled(call, r, rounded);
  }

 private:
  static __device__ __forceinline__ int Column(int j) { return 4 * (Thread() + j * Threads()); }

  float4 weight_[kNorm ? kGroups : 1];
};

// Rows of F32: 16 threads each, as product_float.h says.
__device__ __forceinline__ const FloatPart& PartOf(const Call& call, int row) {
  int which = 0;
  while (which + 1 < int(FewProducts::kMost) && row >= call.floats[which + 1].begin) ++which;
  return call.floats[which];
}
// A warp has one of them at most.
__device__ __forceinline__ void AskForFloats(const Call& call, int row, float* weights) {
  if (row >= call.float_rows) return;
  const FloatPart& part = PartOf(call, row);
  const float* from = part.weight + (row - part.begin) * call.cols;
  for (int i = 4 * threadIdx.x; i < call.cols; i += 4 * 32)
    CopyAsync16(weights + i, from + i, true);
}
__device__ __forceinline__ void MultiplyFloats(const Call& call, int row, const float* weights,
                                               const float* x) {
  if (row >= call.float_rows) return;
  const int lane = threadIdx.x % kNormLanes;
  float sum = 0;
#pragma unroll 8
  for (int i = lane; i < call.cols; i += kNormLanes) sum = fmaf(weights[i], x[i], sum);
  sum = SumLanes(sum);
  if (threadIdx.x != 0) return;
  const FloatPart& part = PartOf(call, row);
  const int column = row - part.begin;
  part.out[column] = part.bias != nullptr ? sum + part.bias[column] : sum;
}

__device__ __forceinline__ float Finish(const Part& part, int column, float scale, float total) {
  const float y = total * (scale * part.scale);
  return part.bias != nullptr ? y + part.bias[column] : y;
}

enum class Then { kNothing, kAdd, kGate };

// Pieces: kTile rows of weights, the kBytes that they take, how they are asked for and multiplied.
template <typename Pieces, bool kNorm, Then kThen, int kGroups>
__global__ void __launch_bounds__(32 * kWarpsMost * 8 / Pieces::kTile, 2)
    SmallKernel(const __grid_constant__ Call call) {
  constexpr int kTile = Pieces::kTile;
  extern __shared__ __align__(128) std::byte shared[];
  constexpr bool kGate = kThen == Then::kGate;
  const int slices = static_cast<int>(blockDim.y), beside = static_cast<int>(blockDim.z);
  const int slice = static_cast<int>(threadIdx.y), z = static_cast<int>(threadIdx.z);
  const int warp = slice + slices * z;
  auto* rounded = reinterpret_cast<uint32_t*>(shared + slices * beside * Pieces::kBytes);
  auto* sums = reinterpret_cast<float*>(rounded + call.cols / 2);
  float* floats = sums + slices * beside * kTile;
  std::byte* piece = shared + warp * Pieces::kBytes;

  // Blocks with rows of F32 come first: the last ones may have to wait for room.
  const int block = static_cast<int>(blockIdx.x) - call.float_blocks;
  const bool has_tiles = kThen != Then::kNothing || block >= 0;
  const int float_row = static_cast<int>(blockIdx.x) * slices * beside + warp;
  const int first_tile = block * call.each + min(block, call.more);
  const int tiles = call.each + (block < call.more ? 1 : 0);
  // The tile at a place in the block, and whose it is.
  const auto tile_of = [&](int place) { return first_tile + (kGate ? place / 2 : place); };
  const auto part_of = [&](int tile, int place) {
    if (kGate) return place % 2;
    int which = 0;
    if (kThen == Then::kNothing) {
      while (which + 1 < call.parts && tile >= call.part[which + 1].begin) ++which;
    }
    return which;
  };
  if (has_tiles) {
    const int tile = tile_of(z);
    const Part& part = call.part[part_of(tile, z)];
    if (tile < first_tile + tiles) Pieces::Ask(piece, part, tile - part.begin, slice, call.cols);
  } else {
    AskForFloats(call, float_row, reinterpret_cast<float*>(piece));
  }
  CommitAsync();
  if (!call.hold_next) LetNextStart();  // not before: its weights come behind these
  Row<kNorm, kGroups> row_of(call);
  WaitForInputs();
  if (call.hold_next) LetNextStart();
  // An output: of tile `place`, column `in_tile` of it.
  const int in_tile = Thread() % kTile;
  const int place = Thread() / kTile * (kGate ? 2 : 1);
  float before = 0;
  const int own_tile = tile_of(place);
  const int which = part_of(own_tile, place);
  const int column = (own_tile - call.part[which].begin) * kTile + in_tile;
  const bool mine = own_tile < first_tile + tiles && column < call.part[which].rows;
  if (kThen == Then::kAdd && mine) before = call.sum[column];
  const float scale = row_of.Round(call, floats, rounded);
  WaitAsync<0>();
  __syncwarp();
  if (!has_tiles) {
    MultiplyFloats(call, float_row, reinterpret_cast<const float*>(piece), floats);
    return;
  }
  Pieces::Multiply(piece, call.part[part_of(tile_of(z), z)], rounded + slice * (kTensorSlice / 2),
                   sums + warp * kTile);
  __syncthreads();
  if (!mine) return;
  const auto total = [&](int of) {
    const float* from = sums + of * slices * kTile + in_tile;
    float all = from[0];
    for (int s = 1; s < slices; ++s) all = all + from[s * kTile];
    return all;
  };
  const float y = Finish(call.part[which], column, scale, total(place));
  call.part[which].out[column] = y;
  if (kThen == Then::kAdd) call.sum[column] = before + y;
  if (kGate) {
    const float gate = Finish(call.part[1], column, scale, total(place + 1));
    call.part[1].out[column] = Gated(call.op, gate, y);
  }
}

// Of a block, beside what NormFactor has.
inline size_t RoomMost() { return ThisGpu().block_shared - 1024; }

struct Plan {
  Call call = {};
  dim3 grid, block;
  size_t shared = 0;
  int groups = 0;
};

// In pieces of so many rows and bytes. False: some warp would have more than one of them, or the
// row needs more threads.
inline bool MakePlan(const FewProducts& few, int tile, int bytes, Plan* plan) {
  const int64_t cols = few.x.cols;
  const bool gate = IsGate(few.op), norm = few.norm.weight != nullptr;
  if (norm && few.op == OutputOp::kAdd) return false;  // no model has that
  if (few.x.f32 == nullptr || few.x.rows != 1 || few.groups.count > 0 || cols == 0 ||
      few.products.size() > FewProducts::kMost || few.floats.size() > FewProducts::kMost ||
      cols % kTensorSlice != 0) {
    return false;
  }
  Call& call = plan->call;
  call.x = few.x.f32;
  call.cols = int(cols);
  int tiles = 0;  // of all
  for (size_t i = 0; i < few.products.size(); ++i) {
    const HalfProduct& one = few.products[i];
    if (one.weight.stride != cols || one.weight.rows * cols > INT32_MAX) return false;
    call.part[i] = {one.weight.data,  one.out.data,     one.bias, int(one.weight.rows),
                    gate ? 0 : tiles, one.weight.scale, false};
    tiles += int(CeilDiv<int64_t>(one.weight.rows, tile));
  }
  call.parts = int(few.products.size());
  if (norm) {
    call.norm = few.norm.weight;
    call.h = few.norm.h.data;
    call.eps = few.norm.eps;
  }
  call.op = few.op;
  call.hold_next = few.hold_next;
  call.sum = few.sum.data;
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    call.floats[i].begin = INT32_MAX;
    if (i >= few.floats.size()) continue;
    const FloatProduct& one = few.floats[i];
    if (!Aligned16(one.weight, 0) || !norm || gate) return false;
    call.floats[i] = {one.weight, one.bias, one.out.data, call.float_rows};
    call.float_rows += int(one.out.cols);
  }
  // As few tiles side by side as leave a multiprocessor for every block.
  const int slices = int(cols / kTensorSlice), matrices = gate ? 2 : 1;
  tiles /= matrices;
  if (tiles == 0) return false;
  int beside = 0, blocks = 0;
  do {
    beside += matrices;
    if (beside * slices > kWarpsMost * 8 / tile) return false;
    call.float_blocks = CeilDiv(call.float_rows, beside * slices);
    blocks = std::min(tiles, ThisGpu().multiprocessors - call.float_blocks);
  } while (tiles > blocks * (beside / matrices));
  call.each = tiles / blocks;
  call.more = tiles % blocks;
  const int warps = beside * slices;
  if (call.float_rows > 0 && int(sizeof(float)) * call.cols > bytes) return false;
  plan->groups = CeilDiv(call.cols, 4 * 32 * warps);
  plan->grid = dim3(unsigned(blocks + call.float_blocks));
  plan->block = dim3(32, unsigned(slices), unsigned(beside));
  plan->shared = size_t(warps) * (size_t(bytes) + size_t(tile) * 4) + size_t(cols) * 2 +
                 (norm ? size_t(LaneRow::Floats(call.cols)) * 4 : 0);
  const int hold = norm ? kHold<true> : kHold<false>;
  return plan->groups <= hold && plan->shared <= RoomMost();
}

template <typename Pieces, bool kNorm, Then kThen, int kGroups>
void Launch(Stream stream, const Plan& plan) {
  const auto kernel = SmallKernel<Pieces, kNorm, kThen, kGroups>;
  LaunchEarly(kernel, plan.grid, plan.block, plan.shared, stream, plan.call);
}
template <typename Pieces, bool kNorm, Then kThen>
void LaunchGroups(Stream stream, const Plan& plan) {
  constexpr int kMost = kHold<kNorm>;
  const auto launch =
      plan.groups == 1 ? Launch<Pieces, kNorm, kThen, 1> : Launch<Pieces, kNorm, kThen, kMost>;
  launch(stream, plan);
}
template <typename Pieces, Then kThen>
void LaunchThen(Stream stream, const Plan& plan) {
  const auto launch = plan.call.norm != nullptr ? LaunchGroups<Pieces, true, kThen>
                                                : LaunchGroups<Pieces, false, kThen>;
  launch(stream, plan);
}
template <typename Pieces>
void LaunchPlan(Stream stream, OutputOp op, const Plan& plan) {
  // One matrix is added, and those of a gate are of one form.
  if constexpr (!Pieces::kMixed) {
    if (IsGate(op)) return LaunchThen<Pieces, Then::kGate>(stream, plan);
    if (op == OutputOp::kAdd) return LaunchGroups<Pieces, false, Then::kAdd>(stream, plan);
  }
  LaunchThen<Pieces, Then::kNothing>(stream, plan);
}

// In tiles of 8 rows, or of 16 where those would leave the tensor cores of a multiprocessor idle
// for the most part. False, and nothing is done: some warp would have more than one piece.
template <typename Flat, typename Tall, typename Prepare>
bool RunPieces(Stream stream, const FewProducts& few, Prepare&& prepare) {
  Plan flat, tall;
  const bool fits = MakePlan(few, Flat::kTile, Flat::kBytes, &flat);
  if (fits && flat.block.y * flat.block.z <= 8) {
    prepare(flat.call);
    LaunchPlan<Flat>(stream, few.op, flat);
    return true;
  }
  if (MakePlan(few, Tall::kTile, Tall::kBytes, &tall)) {
    prepare(tall.call);
    LaunchPlan<Tall>(stream, few.op, tall);
    return true;
  }
  if (!fits) return false;
  prepare(flat.call);
  LaunchPlan<Flat>(stream, few.op, flat);
  return true;
}

}  // namespace reprise::cuda::small
