// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/many.cuh"

namespace reprise::cuda {

void LaunchMany32(Stream stream, const ProductOperands& operands, int64_t slots, int tokens) {
  switch (operands.weight.layout.dtype) {
#define REPRISE_MANY(name) \
  case DType::k##name:     \
    return many::LaunchType<DType::k##name>(stream, operands, slots, tokens)
    REPRISE_MANY(Q8_0);
    REPRISE_MANY(Q4_0);
    REPRISE_MANY(Q4_1);
    REPRISE_MANY(Q5_0);
    REPRISE_MANY(Q5_1);
    REPRISE_MANY(IQ4_NL);
#undef REPRISE_MANY
    default:
      return;
  }
}

}  // namespace reprise::cuda
