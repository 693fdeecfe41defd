// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/many.cuh"

namespace reprise::cuda {

void LaunchMany256(Stream stream, const ProductOperands& operands, int64_t slots, int tokens) {
  switch (operands.weight.layout.dtype) {
#define REPRISE_MANY(name) \
  case DType::k##name:     \
    return many::LaunchType<DType::k##name>(stream, operands, slots, tokens)
    REPRISE_MANY(Q2_K);
    REPRISE_MANY(Q3_K);
    REPRISE_MANY(Q4_K);
    REPRISE_MANY(Q5_K);
    REPRISE_MANY(Q6_K);
    REPRISE_MANY(IQ4_XS);
    REPRISE_MANY(IQ2_XXS);
#undef REPRISE_MANY
    default:
      return;
  }
}

}  // namespace reprise::cuda
