// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/one.cuh"

namespace reprise::cuda {

void LaunchOneOf(Stream stream, DType type, const one::Call& call) {
  switch (type) {
#define REPRISE_ONE(name) \
  case DType::k##name:    \
    return one::Launch<DType::k##name>(stream, call)
    REPRISE_ONE(Q2_K);
    REPRISE_ONE(Q3_K);
    REPRISE_ONE(IQ4_NL);
    REPRISE_ONE(IQ4_XS);
    REPRISE_ONE(IQ2_XXS);
#undef REPRISE_ONE
    default:
      return;
  }
}

}  // namespace reprise::cuda
