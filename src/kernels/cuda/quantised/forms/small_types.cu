// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/small.cuh"

namespace reprise::cuda {

bool LaunchSmallOf(Stream stream, DType type, const one::Call& call) {
  switch (type) {
#define REPRISE_SMALL(name) \
  case DType::k##name:      \
    return one::LaunchSmall<DType::k##name>(stream, call)
    REPRISE_SMALL(Q2_K);
    REPRISE_SMALL(Q3_K);
    REPRISE_SMALL(IQ4_NL);
    REPRISE_SMALL(IQ4_XS);
    REPRISE_SMALL(IQ2_XXS);
#undef REPRISE_SMALL
    default:
      return false;
  }
}

}  // namespace reprise::cuda
