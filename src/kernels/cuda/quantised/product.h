// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/quantised/layout.h"
#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/view.h"

// Products with quantised weights, with the bits of the CPU (kernels/cpu/table.h): the sums of a
// block are exact integers, in whatever order; what follows is one f32 chain over the blocks of a
// row. So the forms below, for few and for many rows, give the same bits for every number of rows.
namespace reprise::cuda {

// y[t][r] = x[t] . weight[r] (+ bias[r]). x: quantised in the blocks of the weight's type (32 or
// 256); bias: [y.cols] or null. REQUIRES: x.q is aligned to 32 bytes, x.sum to 16, and the last
// word of x.sum may be read whole.
void ProductQuantised(Stream stream, const QuantisedMatrix& weight, const float* bias,
                      const QuantisedView& x, const View& y);
// Several products of one input, where rows are few in one launch for each type of weights.
struct QuantisedProduct {
  QuantisedMatrix weight;
  const float* bias = nullptr;
  View y;
};
void ProductsQuantised(Stream stream, std::span<const QuantisedProduct> products,
                       const QuantisedView& x);

// Rows of y in the slots of a plan: slot s of expert e is x[plan.row[s]] (x[s] where `gather` is
// false) times the weights of e, each a stack of plan.experts matrices of y.cols rows. No bias.
void ExpertsProductsQuantised(Stream stream, std::span<const QuantisedProduct> products,
                              const PlanView& plan, bool gather, const QuantisedView& x);

}  // namespace reprise::cuda
