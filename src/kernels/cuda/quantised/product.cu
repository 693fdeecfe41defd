// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/cuda/quantised/forms/product.cuh"

namespace reprise::cuda {
namespace {

constexpr int kFew = 32;  // tokens that share weights, up to which reading the weights decides

// Products of one input and one type of weights, at most ProductList::kMost. `tokens`: about how
// many rows of y share their weights.
void Launch(Stream stream, std::span<const ProductOperands> products, int64_t slots,
            int64_t tokens) {
  if (slots == 0) return;
  const bool block256 = TraitsOf(products[0].weight.layout.dtype).block_elements == 256;
  const int width = static_cast<int>(tokens < 1 ? 1 : tokens < 1 << 20 ? tokens : 1 << 20);
  if (width == 1 && block256) return LaunchSingle256(stream, products, slots);
  if (width <= kFew) return (block256 ? LaunchFew256 : LaunchFew32)(stream, products, slots, width);
  for (const ProductOperands& one : products) {
    (block256 ? LaunchMany256 : LaunchMany32)(stream, one, slots, width);
  }
}

}  // namespace

void ProductsQuantised(Stream stream, std::span<const QuantisedProduct> products,
                       const QuantisedView& x) {
  std::vector<ProductOperands> alike;
  const auto launch = [&] {
    if (!alike.empty()) Launch(stream, alike, x.rows, x.rows);
    alike.clear();
  };
  for (const QuantisedProduct& one : products) {
    if (one.y.cols == 0) continue;
    const bool other = !alike.empty() && alike[0].weight.layout.dtype != one.weight.layout.dtype;
    if (other || alike.size() == ProductList::kMost) launch();
    alike.push_back({one.weight, one.bias, x, one.y, nullptr, nullptr, 0});
  }
  launch();
}

void ProductQuantised(Stream stream, const QuantisedMatrix& weight, const float* bias,
                      const QuantisedView& x, const View& y) {
  const QuantisedProduct one[] = {{weight, bias, y}};
  ProductsQuantised(stream, one, x);
}

void ExpertsProductQuantised(Stream stream, const QuantisedMatrix& weight, const PlanView& plan,
                             bool gather, const QuantisedView& x, const View& y) {
  // The rows of one expert are at least one, and on average more where most experts have some.
  if (y.cols == 0) return;
  const ProductOperands one[] = {
      {weight, nullptr, x, y, plan.begin, gather ? plan.row : nullptr, plan.experts}};
  Launch(stream, one, plan.slots, (plan.slots + plan.experts - 1) / plan.experts);
}

}  // namespace reprise::cuda
