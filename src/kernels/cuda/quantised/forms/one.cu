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

}  // namespace

bool MayQuantiseOnTheWay(const View& x, int64_t block) { return Fits(x, block, false); }
bool MayNormAndQuantise(const View& x, int64_t block) { return Fits(x, block, true); }

void RunOneRowProducts(Stream stream, const OneRowProducts& one) {
  const DType type = one.products[0].weight.layout.dtype;
  for (size_t first = 0; first < one.products.size(); first += OneRowProducts::kMost) {
    one::Call call = {one.x, one.norm, {}, {}, 0, 0, one.op, one.sum};
    if (first > 0) call.norm.h = {};
    const size_t count = std::min(OneRowProducts::kMost, one.products.size() - first);
    std::copy_n(one.products.begin() + int64_t(first), count, call.product);
    const bool none = std::all_of(call.product, call.product + count, [](const auto& product) {
      return product.weight.layout.rows == 0;
    });
    if (none) continue;
    const bool wide = TraitsOf(type).block_elements == 256;
    if ((wide ? LaunchSmall256 : LaunchSmall32)(stream, type, call)) continue;
    (wide ? LaunchOne256 : LaunchOne32)(stream, type, call);
  }
}

}  // namespace reprise::cuda
