// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/forms/one.cuh"

namespace reprise::cuda {

void LaunchOne256(Stream stream, DType type, const one::Call& call) {
  switch (type) {
#define REPRISE_ONE(name) \
  case DType::k##name:    \
    return one::Launch<DType::k##name>(stream, call)
    REPRISE_ONE(Q2_K);
    REPRISE_ONE(Q3_K);
    REPRISE_ONE(Q4_K);
    REPRISE_ONE(Q5_K);
    REPRISE_ONE(Q6_K);
    REPRISE_ONE(IQ4_XS);
    REPRISE_ONE(IQ2_XXS);
#undef REPRISE_ONE
    default:
      return;
  }
}

// Those that files mix: matrices for which more bits are worth it have Q6_K.
bool LaunchTwo256(Stream stream, DType first, const one::Call& a, DType second,
                  const one::Call& b) {
  if (first == DType::kQ6_K && second != DType::kQ6_K) {
    return LaunchTwo256(stream, second, b, first, a);
  }
  if (second != DType::kQ6_K) return false;
  switch (first) {
    case DType::kQ4_K:
      one::LaunchTwo<DType::kQ4_K, DType::kQ6_K>(stream, a, b);
      return true;
    case DType::kQ5_K:
      one::LaunchTwo<DType::kQ5_K, DType::kQ6_K>(stream, a, b);
      return true;
    default:
      return false;
  }
}

}  // namespace reprise::cuda
