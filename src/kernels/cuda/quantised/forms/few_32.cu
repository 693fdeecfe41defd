// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/few.cuh"

namespace reprise::cuda {

void LaunchFew32(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                 int tokens) {
  switch (products[0].weight.layout.dtype) {
#define REPRISE_FEW(name) \
  case DType::k##name:    \
    return few::LaunchType<DType::k##name>(stream, products, slots, tokens)
    REPRISE_FEW(Q8_0);
    REPRISE_FEW(Q4_0);
    REPRISE_FEW(Q4_1);
    REPRISE_FEW(Q5_0);
    REPRISE_FEW(Q5_1);
    REPRISE_FEW(IQ4_NL);
#undef REPRISE_FEW
    default:
      return;
  }
}

}  // namespace reprise::cuda
