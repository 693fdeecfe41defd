// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "device/device_ptr.h"
#include "kernels/matrix.h"
#include "kernels/op_context.h"
#include "kernels/rows.h"

// Adapters of rank r: what some rows of a step add to their products.
//
//   y = (W x + bias) + up (scale * (down x))
//
// Both products are those of Project with weights of their type: each has the order of arithmetic
// that Project has. The scale is one multiplication of every value between them (none where it is
// 1), and the sum one addition. A row without an adapter is not touched: not even by adding zero.
namespace reprise {

struct LowRank {
  Matrix down;  // [rank, columns of W]
  Matrix up;    // [rows of W, rank]
  float scale = 1;

  bool empty() const { return down.empty(); }
};

// A number for each weight that adapters may change.
using WeightIndex = std::unordered_map<const Matrix*, size_t>;

// Rows [row_begin, row_begin + row_count) of the step have an adapter; products[i] is what it adds
// to weight i, empty: nothing.
struct AdaptedRows {
  int64_t row_begin = 0;
  int64_t row_count = 0;
  std::span<const LowRank> products;
  DevicePtr<const std::byte> table = nullptr;  // of these products (Backend::LowRankTable)
  // Equal for adapters of the same weights with the same ranks.
  uint64_t shape = 0;
};

// The adapters of a step, in an OpContext: Project and ProjectGroups add what they say.
// REQUIRES: inputs of weights in `weights` have the rows of the step.
struct StepAdapters {
  const WeightIndex* weights = nullptr;
  std::span<const AdaptedRows> rows;  // ascending
  int64_t row_count = 0;              // of the step
};

// out = out + up (scale * (down x)).
struct LowRankSum {
  ConstRows x;
  const LowRank* product = nullptr;
  Rows out;
};

}  // namespace reprise
