// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>

#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/few/call.cuh"
#include "kernels/cuda/tensor/mma.cuh"

// Products with F32 weights beside others of the same row: the gates of a recurrence are a few
// rows, and a kernel of their own costs more than they do. A tile of them is what the rings of a
// block hold. The bits are those of product_float.h.
namespace reprise::cuda::few {

// The rings of a block, one behind the other, take the rows of a tile of F32, as many whole stages
// for each as it needs: of this warp's ring one.
inline __device__ __noinline__ void LoadFloats(const Call& call, int tile, int stage, void* to) {
  const int piece = static_cast<int>(threadIdx.x) / kWarp * kStages + stage;
  const int cols = static_cast<int>(call.x.cols);
  const int pieces = CeilDiv(cols, kStageFloats);  // of a row
  const int row = tile * call.float_rows + piece / pieces;
  if (piece / pieces >= call.float_rows || row >= call.float_begin[FewProducts::kMost]) return;
  int which = 0;
  while (row >= call.float_begin[which + 1]) ++which;
  const float* from = call.floats[which].weight + (row - call.float_begin[which]) * call.x.cols;
  for (int i = threadIdx.x % kWarp * 4; i < kStageFloats; i += kWarp * 4) {
    const int column = piece % pieces * kStageFloats + i;
    if (column < cols) CopyAsync16(static_cast<float*>(to) + i, from + column, true);
  }
}

// The same, of the whole block and all at once.
inline __device__ __noinline__ void LoadFloatTile(const Call& call, int tile, float* to) {
  const int cols = static_cast<int>(call.x.cols);
  const int pitch = CeilDiv(cols, kStageFloats) * kStageFloats;
  const int first = tile * call.float_rows;
  const int rows = min(call.float_rows, call.float_begin[FewProducts::kMost] - first);
  for (int i = 4 * threadIdx.x; i < rows * pitch; i += 4 * blockDim.x) {
    const int row = first + i / pitch, column = i % pitch;
    if (column >= cols) continue;
    int which = 0;
    while (row >= call.float_begin[which + 1]) ++which;
    CopyAsync16(to + i,
                call.floats[which].weight + (row - call.float_begin[which]) * call.x.cols + column,
                true);
  }
  CommitAsync();
}

// A tile of rows of F32 with the normed row x: 16 threads a row, as product_float.h says; a warp a
// row, where they suffice. The whole block calls.
inline __device__ __noinline__ void FloatTile(const Call& call, int tile, const float* weights,
                                              const float* x) {
  WaitAsync<0>();
  __syncthreads();
  const int cols = static_cast<int>(call.x.cols);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int in_tile = warp + static_cast<int>(threadIdx.x) % kWarp / kNormLanes * warps;
  const int row = tile * call.float_rows + in_tile;
  const bool real = in_tile < call.float_rows && row < call.float_begin[FewProducts::kMost];
  if (!__any_sync(kFullWarp, real)) return;
  const int lane = threadIdx.x % kNormLanes;
  const float* mine =
      weights + (real ? in_tile : warp) * CeilDiv(cols, kStageFloats) * kStageFloats;
  float sum = 0;
#pragma unroll 16
  for (int i = lane; i < cols; i += kNormLanes) sum = fmaf(mine[i], x[i], sum);
  sum = SumLanes(sum);
  if (!real || lane != 0) return;
  int which = 0;
  while (row >= call.float_begin[which + 1]) ++which;
  const FloatProduct& product = call.floats[which];
  const int column = row - call.float_begin[which];
  product.out.data[column] = product.bias != nullptr ? sum + product.bias[column] : sum;
}

// Adds tiles of rows of F32 behind the others, as large as the rings of a block. False, and nothing
// is added: they need a kernel of their own.
inline bool AddFloats(std::span<const FloatProduct> floats, size_t ring_bytes, Call* call) {
  const int pieces = CeilDiv(static_cast<int>(call->x.cols), kStageFloats);  // of a row
  const int rows = int(ring_bytes / (kStageFloats * sizeof(float))) / pieces;
  const bool aligned = std::all_of(floats.begin(), floats.end(), [](const FloatProduct& one) {
    return Aligned16(one.weight, 0);
  });
  if (!call->normed_row || !aligned || floats.size() > FewProducts::kMost || rows == 0)
    return false;
  call->float_rows = rows;
  std::copy(floats.begin(), floats.end(), call->floats);
  for (size_t i = 0; i < FewProducts::kMost; ++i) {
    call->float_begin[i + 1] = call->float_begin[i] + static_cast<int>(call->floats[i].out.cols);
  }
  call->all_tiles += CeilDiv(call->float_begin[FewProducts::kMost], rows);
  return true;
}

// In a kernel of their own, behind the one that norms the row if there is a norm.
inline void RunFloats(Stream stream, const FewProducts& few) {
  const View x = {const_cast<float*>(few.x.f32), few.x.rows, few.x.cols, few.x.stride};
  ProductsF32(stream, few.floats, few.norm.weight != nullptr ? few.norm.h : x);
}

}  // namespace reprise::cuda::few
