// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

// What launches and kernels share: sizes of grids, vectors of 16 bytes, the virtual lanes of
// kernels/cpu/table.h. For nvcc only.
namespace reprise::cuda {

inline constexpr unsigned kFullWarp = 0xFFFFFFFF;

inline unsigned Blocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// Rows that a grid takes in its y dimension; kernels walk on in steps of gridDim.y.
inline unsigned RowBlocks(int64_t rows) {
  return static_cast<unsigned>(rows < 65535 ? rows : 65535);
}

inline bool Aligned16(const void* data, int64_t stride) {
  return (reinterpret_cast<uintptr_t>(data) & 15) == 0 && stride % 4 == 0;
}

// The 16 virtual lanes of a reduction lie in 16 neighbouring threads of a warp (all of them must
// call). Every thread gets the sum: the tree is that of the table, as addition commutes.
__device__ inline float SumLanes(float lane) {
#pragma unroll
  for (int half = 8; half > 0; half /= 2) lane += __shfl_xor_sync(kFullWarp, lane, half, 16);
  return lane;
}

}  // namespace reprise::cuda
