// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/one.cuh"

namespace reprise::cuda {

void LaunchOne32(Stream stream, DType type, const one::Call& call) {
  switch (type) {
#define REPRISE_ONE(name) \
  case DType::k##name:    \
    return one::Launch<DType::k##name>(stream, call)
    REPRISE_ONE(Q8_0);
    REPRISE_ONE(Q4_0);
    REPRISE_ONE(Q4_1);
    REPRISE_ONE(Q5_0);
    REPRISE_ONE(Q5_1);
    REPRISE_ONE(IQ4_NL);
#undef REPRISE_ONE
    default:
      return;
  }
}

}  // namespace reprise::cuda
