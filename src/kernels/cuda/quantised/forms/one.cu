// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/small.cuh"

namespace reprise::cuda {
namespace {

bool Fits(const View& x, int64_t block, bool norm) {
  if (x.rows != 1 || x.cols % block != 0 || !Aligned16(x.data, 0)) return false;
  if (norm && x.cols > 8 * one::kHold * one::kThreads) return false;
  const size_t floats = norm ? size_t(LaneRow::Floats(int(x.cols))) * sizeof(float) : 0;
  return one::kRingBytes + one::InputBytes(x.cols, block).all() + floats <= one::BlockShared();
}

DType TypeOf(std::span<const QuantisedProduct> products) { return products[0].weight.layout.dtype; }

// Some products of a call. REQUIRES: no more than one launch takes.
one::Call CallOf(const OneRowProducts& one, std::span<const QuantisedProduct> products) {
  one::Call call = {};
  call.x = one.x;
  call.norm = one.norm;
  call.op = one.op;
  call.hold_next = one.hold_next;
  call.sum = one.sum;
  std::copy(products.begin(), products.end(), call.product);
  return call;
}

}  // namespace

bool MayQuantiseOnTheWay(const View& x, int64_t block) { return Fits(x, block, false); }
bool MayNormAndQuantise(const View& x, int64_t block) { return Fits(x, block, true); }

void RunOneRowProducts(Stream stream, const OneRowProducts& one) {
  const DType type = TypeOf(one.products);
  for (size_t first = 0; first < one.products.size(); first += OneRowProducts::kMost) {
    const size_t count = std::min(OneRowProducts::kMost, one.products.size() - first);
    one::Call call = CallOf(one, one.products.subspan(first, count));
    if (first > 0) call.norm.h = {};
    const bool none = std::all_of(call.product, call.product + count, [](const auto& product) {
      return product.weight.layout.rows == 0;
    });
    if (none) continue;
    if (!LaunchSmallOf(stream, type, call)) LaunchOneOf(stream, type, call);
  }
}

}  // namespace reprise::cuda
