// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/chosen/chosen.cuh"

namespace reprise::cuda {
namespace {

template <typename Call>
bool LaunchType(const chosen::Target& target, DType type, const Call& call) {
  switch (type) {
#define REPRISE_CHOSEN(name) \
  case DType::k##name:       \
    return chosen::Launch<DType::k##name>(target, call)
    REPRISE_CHOSEN(Q2_K);
    REPRISE_CHOSEN(Q3_K);
    REPRISE_CHOSEN(Q4_K);
    REPRISE_CHOSEN(Q5_K);
    REPRISE_CHOSEN(Q6_K);
    REPRISE_CHOSEN(IQ4_XS);
    REPRISE_CHOSEN(IQ2_XXS);
#undef REPRISE_CHOSEN
    default:
      return false;
  }
}

}  // namespace

bool LaunchChosen256(const chosen::Target& target, DType type, const ChosenGates& gates) {
  return LaunchType(target, type, gates);
}
bool LaunchChosen256(const chosen::Target& target, DType type, const ChosenSum& sum) {
  return LaunchType(target, type, sum);
}

}  // namespace reprise::cuda
