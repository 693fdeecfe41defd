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

// Those that lie side by side and have one type of weights in one launch.
void LaunchAlike(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                 int64_t tokens) {
  const auto type = [](const ProductOperands& one) { return one.weight.layout.dtype; };
  while (!products.empty()) {
    size_t count = 1;
    while (count < products.size() && count < ProductList::kMost &&
           type(products[count]) == type(products[0])) {
      ++count;
    }
    Launch(stream, products.first(count), slots, tokens);
    products = products.subspan(count);
  }
}

}  // namespace

void ProductsQuantised(Stream stream, std::span<const QuantisedProduct> products,
                       const QuantisedView& x) {
  std::vector<ProductOperands> all;
  for (const QuantisedProduct& one : products) {
    if (one.y.cols > 0) all.push_back({one.weight, one.bias, x, one.y, nullptr, nullptr, 0});
  }
  LaunchAlike(stream, all, x.rows, x.rows);
}

void ProductQuantised(Stream stream, const QuantisedMatrix& weight, const float* bias,
                      const QuantisedView& x, const View& y) {
  const QuantisedProduct one[] = {{weight, bias, y}};
  ProductsQuantised(stream, one, x);
}

void ExpertsProductsQuantised(Stream stream, std::span<const QuantisedProduct> products,
                              const PlanView& plan, bool gather, const QuantisedView& x) {
  std::vector<ProductOperands> all;
  const int32_t* row = gather ? plan.row : nullptr;
  for (const QuantisedProduct& one : products) {
    if (one.y.cols > 0) {
      all.push_back({one.weight, nullptr, x, one.y, plan.begin, row, plan.experts});
    }
  }
  // The rows of one expert are at least one, and on average more where most experts have some.
  LaunchAlike(stream, all, plan.slots, (plan.slots + plan.experts - 1) / plan.experts);
}

}  // namespace reprise::cuda
