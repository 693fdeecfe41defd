// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/product_half.h"

// The rows of a product as tiles: those of one matrix, or of groups that have a matrix each.
namespace reprise::cuda {

inline constexpr int kWarp = 32;

struct Tile {
  int matrix = -1;  // -1: there is nothing to do
  int64_t begin = 0;
  int64_t end = 0;
};

// Tile number `index` of the groups, cut into tiles of at most kRows rows. Called by a whole warp.
template <int kRows>
__device__ Tile FindTile(const HalfGroups& groups, int index) {
  const int lane = threadIdx.x % kWarp;
  int before = 0;
  for (int first = 0; first < groups.count; first += kWarp) {
    const int group = first + lane;
    const bool real = group < groups.count;
    const int begin = real ? groups.begin[group] : 0;
    const int end = real ? groups.begin[group + 1] : 0;
    const int tiles = CeilDiv(end - begin, kRows);
    int upto = tiles;  // of this lane and those before it
    for (int d = 1; d < kWarp; d *= 2) {
      const int other = __shfl_up_sync(~0u, upto, d);
      if (lane >= d) upto += other;
    }
    const int mine = before + upto - tiles;
    const unsigned found = __ballot_sync(~0u, index >= mine && index < mine + tiles);
    if (found != 0) {
      const int owner = __ffs(found) - 1;
      const int from = __shfl_sync(~0u, begin + (index - mine) * kRows, owner);
      return {first + owner, from, min(from + kRows, __shfl_sync(~0u, end, owner))};
    }
    before += __shfl_sync(~0u, upto, kWarp - 1);
  }
  return {};
}

template <int kRows>
__device__ Tile TileOf(const HalfRows& x, const HalfGroups& groups, int index) {
  if (groups.count > 0) return FindTile<kRows>(groups, index);
  const int64_t begin = int64_t{index} * kRows;
  return {0, begin, min(begin + kRows, x.rows)};
}

__device__ __forceinline__ float ScaleOf(const HalfMatrix& weight, const HalfGroups& groups,
                                         int64_t matrix) {
  return groups.scale != nullptr ? groups.scale[matrix] : weight.scale;
}
__device__ __forceinline__ int64_t SourceRow(const HalfGroups& groups, int64_t slot) {
  return groups.row != nullptr ? groups.row[slot] : slot;
}

// Tiles of `rows` rows that `slots` rows in groups may need.
inline int64_t TileBound(int64_t slots, int rows, const HalfGroups& groups) {
  const int64_t tiles = CeilDiv<int64_t>(slots, rows);
  return groups.count == 0 ? tiles : std::min(slots, tiles + groups.count);
}

}  // namespace reprise::cuda
