// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/tensor/product_half.h"
#include "kernels/cuda/view.h"

// What adapters add to products (kernels/low_rank_ops.h), of all rows and adapters of a step at
// once: one kernel multiplies with the narrow matrices, one with the tall ones. Which row has which
// adapter is data, so steps with any adapters of one shape are one graph. The bits are those of the
// two products one after another, and of the addition.
namespace reprise::cuda {

// One weight in the table of an adapter, which has one of these for every weight of the model.
// Matrices as HalfMatrix has them, or of floats without a gap between rows.
struct LowRankView {
  const void* down = nullptr;  // [rank, columns of the weight]; null: nothing is added
  const void* up = nullptr;    // [rows of the weight, rank]
  int32_t rank = 0;
  int32_t down_stride = 0;  // elements
  int32_t up_stride = 0;
  float scale = 1;
  float down_scale = 1;  // of 16-bit matrices
  float up_scale = 1;
  int32_t down_floats = 0;  // not 0: F32
  int32_t up_floats = 0;
};

inline constexpr int64_t kLowRankMost = 1024;

struct LowRankCall {
  static constexpr int kMost = 8;

  View x;
  HalfRows half;                               // x, rounded
  const LowRankView* const* tables = nullptr;  // [rows], null: a row without an adapter
  // Products of x whose outputs are added to: at these places in the tables.
  int count = 0;
  int weight[kMost] = {};
  View out[kMost];
  int ranks = 0;          // the largest of an adapter, a multiple of 16
  float* sums = nullptr;  // [LowRankSumFloats]
};

// Slices of K, which are summed up where they are read.
inline int64_t LowRankSlices(int64_t cols) {
  return (cols + reference::kTensorSlice - 1) / reference::kTensorSlice;
}
inline int64_t LowRankSumFloats(const LowRankCall& call) {
  return call.count * call.x.rows * LowRankSlices(call.x.cols) * call.ranks;
}

// down x, before the products whose outputs are added to or behind them.
void RunLowRankDown(Stream stream, const LowRankCall& call);
// Behind both: out += up (scale * (down x)).
void RunLowRankUp(Stream stream, const LowRankCall& call);

}  // namespace reprise::cuda
