// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/product.cuh"

namespace reprise::cuda {
namespace {

constexpr int kFew = 32;  // tokens that share weights, up to which reading the weights decides

// `tokens`: about how many rows of y share their weights.
void Launch(Stream stream, const ProductOperands& operands, int64_t slots, int64_t tokens) {
  if (slots == 0 || operands.y.cols == 0) return;
  const bool block256 = TraitsOf(operands.weight.layout.dtype).block_elements == 256;
  const int width = static_cast<int>(tokens < 1 ? 1 : tokens < 1 << 20 ? tokens : 1 << 20);
  if (width == 1 && block256) {
    LaunchSingle256(stream, operands, slots);
  } else if (width <= kFew) {
    (block256 ? LaunchFew256 : LaunchFew32)(stream, operands, slots, width);
  } else {
    (block256 ? LaunchMany256 : LaunchMany32)(stream, operands, slots, width);
  }
}

}  // namespace

void ProductQuantised(Stream stream, const QuantisedMatrix& weight, const float* bias,
                      const QuantisedView& x, const View& y) {
  Launch(stream, {weight, bias, x, y, nullptr, nullptr, 0}, y.rows, y.rows);
}

void ExpertsProductQuantised(Stream stream, const QuantisedMatrix& weight, const PlanView& plan,
                             bool gather, const QuantisedView& x, const View& y) {
  // The rows of one expert are at least one, and on average more where most experts have some.
  Launch(stream, {weight, nullptr, x, y, plan.begin, gather ? plan.row : nullptr, plan.experts},
         plan.slots, (plan.slots + plan.experts - 1) / plan.experts);
}

}  // namespace reprise::cuda
