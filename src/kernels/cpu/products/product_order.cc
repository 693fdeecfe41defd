// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/product_order.h"

namespace reprise::cpu {
namespace {

// More models than this have been and gone: their weights are forgotten together.
constexpr size_t kProductMax = 1 << 14;
// What a thread asks for ahead: some microseconds of its share of the memory's rate, and little
// beside what the second-level cache holds.
constexpr size_t kAheadBytes = 192 << 10;

}  // namespace

void ProductOrder::Begin(Place weights, std::span<const Place> starts, ThreadPool& pool) {
  if (products_.size() >= kProductMax) products_.clear();
  if (last_ != nullptr) products_[last_].next = weights;
  last_ = weights;
  Product& product = products_[weights];
  product.starts.assign(starts.begin(), starts.end());
  if (product.next == nullptr) return;
  const auto next = products_.find(product.next);
  if (next == products_.end() || next->second.starts.size() != starts.size()) return;
  for (size_t thread = 1; thread < starts.size(); ++thread) {
    pool.Expect(static_cast<int>(thread), next->second.starts[thread], kAheadBytes);
  }
}

}  // namespace reprise::cpu
