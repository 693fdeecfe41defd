// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/rows/experts.h"
#include "kernels/cuda/view.h"

// Products with F32 weights, with the bits of the CPU: 16 virtual lanes over k, fma(w, x, lane).
namespace reprise::cuda {

// y[t][r] = x[t] . weight[r] (+ bias[r]). weight: [y.cols, x.cols], rows without a gap between
// them; bias: [y.cols] or null.
void ProductF32(Stream stream, const float* weight, const float* bias, const View& x,
                const View& y);

// Several of one x, for few rows one kernel.
struct FloatProduct {
  const float* weight;
  const float* bias;
  View out;
};
void ProductsF32(Stream stream, std::span<const FloatProduct> products, const View& x);

// Rows of y in slots of a plan: slot s of expert e is x[plan.row[s]] (x[s] where `gather` is false)
// times the weights of e. weight: [experts, y.cols, x.cols].
void ExpertsProductF32(Stream stream, const float* weight, const PlanView& plan, bool gather,
                       const View& x, const View& y);

}  // namespace reprise::cuda
