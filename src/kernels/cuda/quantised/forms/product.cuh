// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/quantised/product.h"

// What the forms of a product share: its operands, and which tokens and weights a block takes.
namespace reprise::cuda {

struct ProductOperands {
  QuantisedMatrix weight;
  const float* bias;
  QuantisedView x;
  View y;
  // Experts, or null for one matrix and rows of their own.
  const int32_t* begin;
  const int32_t* row;
  int experts;
};

// Products of one input with weights of one type, side by side along the grid.
struct ProductList {
  static constexpr int kMost = 4;
  ProductOperands product[kMost];
  int begin[kMost + 1];  // the first block of each, and the end

  // For blocks of `rows` rows of weights.
  ProductList(std::span<const ProductOperands> products, int rows) : product{}, begin{} {
    for (int i = 0; i < kMost; ++i) {
      const bool real = i < static_cast<int>(products.size());
      if (real) product[i] = products[size_t(i)];
      begin[i + 1] =
          begin[i] + (real ? static_cast<int>(Blocks(products[size_t(i)].y.cols, rows)) : 0);
    }
  }
  __device__ int Find(int block) const {
    int which = 0;
    while (block >= begin[which + 1]) ++which;
    return which;
  }
};

// Consecutive rows of y that are multiplied with the same weights.
struct TokenGroup {
  int begin;
  int end;
  int64_t weight_row;  // of y's first column

  __device__ bool Contains(int t) const { return begin + t < end; }
  // The row of x of token t of the group; of its last one behind the end.
  __device__ int64_t Input(const ProductOperands& operands, int t) const {
    const int at = min(begin + t, end - 1);
    return operands.row != nullptr ? operands.row[at] : at;
  }
};

// Group `index` of `tokens` rows each, expert by expert; false if there are fewer. By whole warps.
__device__ inline bool FindGroup(const ProductOperands& operands, int index, int tokens,
                                 TokenGroup* group) {
  if (operands.begin == nullptr) {
    const int rows = static_cast<int>(operands.y.rows);
    *group = {index * tokens, min(index * tokens + tokens, rows), 0};
    return group->begin < rows;
  }
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int first = 0; first < operands.experts; first += 32) {
    const int e = first + lane;
    const int begin = e < operands.experts ? operands.begin[e] : 0;
    const int end = e < operands.experts ? operands.begin[e + 1] : 0;
    const int groups = (end - begin + tokens - 1) / tokens;
    int through = groups;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kFullWarp, through, step);
      if (lane >= step) through += other;
    }
    const unsigned behind = __ballot_sync(kFullWarp, before + through > index);
    if (behind == 0) {
      before += __shfl_sync(kFullWarp, through, 31);
      continue;
    }
    const int found = __ffs(behind) - 1;
    const int skipped = index - before - __shfl_sync(kFullWarp, through - groups, found);
    const int from = __shfl_sync(kFullWarp, begin, found) + skipped * tokens;
    *group = {from, min(from + tokens, __shfl_sync(kFullWarp, end, found)),
              (first + found) * operands.y.cols};
    return true;
  }
  return false;
}

// The same for groups of one row, which need no counting: as many experts are before it as end
// there.
__device__ inline bool FindRow(const ProductOperands& operands, int index, TokenGroup* group) {
  if (operands.begin == nullptr) return FindGroup(operands, index, 1, group);
  constexpr int kAtOnce = 4;  // are asked for before the first is looked at
  const int lane = threadIdx.x % 32;
  int expert = 0;
  for (int first = 0; first < operands.experts; first += 32 * kAtOnce) {
    int end[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int e = first + 32 * i + lane;
      end[i] = e < operands.experts ? operands.begin[e + 1] : INT32_MAX;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) expert += __popc(__ballot_sync(kFullWarp, end[i] <= index));
  }
  *group = {index, index + 1, expert * operands.y.cols};
  return expert < operands.experts;
}

// The most groups there can be.
inline unsigned GroupCount(const ProductOperands& operands, int64_t slots, int tokens) {
  if (operands.begin == nullptr || tokens == 1) return RowBlocks(Blocks(slots, tokens));
  const int64_t partial = operands.experts < slots ? operands.experts : slots;
  return RowBlocks(slots / tokens + partial);
}

// One launch per form and width of blocks; the forms for few rows take up to ProductList::kMost
// products of one input and one type of weights. `slots`: rows of y; `tokens`: about how many of
// them share weights.
void LaunchSingle256(Stream stream, std::span<const ProductOperands> products, int64_t slots);
void LaunchFew32(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                 int tokens);
void LaunchFew256(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                  int tokens);
void LaunchMany32(Stream stream, const ProductOperands& operands, int64_t slots, int tokens);
void LaunchMany256(Stream stream, const ProductOperands& operands, int64_t slots, int tokens);

}  // namespace reprise::cuda
