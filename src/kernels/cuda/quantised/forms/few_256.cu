// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/few.cuh"

namespace reprise::cuda {

void LaunchFew256(Stream stream, std::span<const ProductOperands> products, int64_t slots,
                  int tokens) {
  switch (products[0].weight.layout.dtype) {
#define REPRISE_FEW(name) \
  case DType::k##name:    \
    return few::LaunchType<DType::k##name>(stream, products, slots, tokens)
    REPRISE_FEW(Q2_K);
    REPRISE_FEW(Q3_K);
    REPRISE_FEW(Q4_K);
    REPRISE_FEW(Q5_K);
    REPRISE_FEW(Q6_K);
    REPRISE_FEW(IQ4_XS);
    REPRISE_FEW(IQ2_XXS);
#undef REPRISE_FEW
    default:
      return;
  }
}

}  // namespace reprise::cuda
