// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/small.cuh"

namespace reprise::cuda {

bool LaunchSmall32(Stream stream, DType type, const one::Call& call) {
  switch (type) {
#define REPRISE_SMALL(name) \
  case DType::k##name:      \
    return one::LaunchSmall<DType::k##name>(stream, call)
    REPRISE_SMALL(Q8_0);
    REPRISE_SMALL(Q4_0);
    REPRISE_SMALL(Q4_1);
    REPRISE_SMALL(Q5_0);
    REPRISE_SMALL(Q5_1);
    REPRISE_SMALL(IQ4_NL);
#undef REPRISE_SMALL
    default:
      return false;
  }
}

}  // namespace reprise::cuda
