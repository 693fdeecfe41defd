// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/joined/riders.h"
#include "kernels/cuda/product_float.h"
#include "kernels/cuda/tensor/product_half.h"

// Products of few rows with 16-bit weights: bound by reading the weights, and, where the matrices
// are small, by the number of kernels. So the ops around a product can ride along.
namespace reprise::cuda {

// Rows for which this is the quickest form where no copy engine brings operands (product_half.cu
// has the other case), and those that a group of rows may have.
inline constexpr int64_t kFewRows = 16;
inline constexpr int64_t kFewGroupRows = 16;
// Rows that blocks round themselves, at most.
inline constexpr int kFloatRows = 4;

struct FewProducts {
  static constexpr size_t kMost = 4;  // matrices of one launch

  HalfRows x;
  InputNorm norm;
  HalfGroups groups;
  std::span<const HalfProduct> products;
  // Products of the same rows, or of what the norm makes of them, with F32 weights: of one row
  // behind a norm in the same kernel. REQUIRES, where there are any: x.f32, no groups, no op.
  std::span<const FloatProduct> floats;
  OutputOp op = OutputOp::kNone;
  View sum;
  bool hold_next = false;  // see StartStep
};
void RunFewProducts(Stream stream, const FewProducts& call);

// Whether blocks can round these rows themselves, which is cheaper than waiting for a kernel that
// does; with a norm before it.
bool MayRoundOnTheWay(const View& x);
bool MayNormOnTheWay(const View& x);

}  // namespace reprise::cuda
