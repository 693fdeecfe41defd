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
    REPRISE_CHOSEN(Q8_0);
    REPRISE_CHOSEN(Q4_0);
    REPRISE_CHOSEN(Q4_1);
    REPRISE_CHOSEN(Q5_0);
    REPRISE_CHOSEN(Q5_1);
    REPRISE_CHOSEN(IQ4_NL);
#undef REPRISE_CHOSEN
    default:
      return false;
  }
}

}  // namespace

bool LaunchChosen32(const chosen::Target& target, DType type, const ChosenGates& gates) {
  return LaunchType(target, type, gates);
}
bool LaunchChosen32(const chosen::Target& target, DType type, const ChosenSum& sum) {
  return LaunchType(target, type, sum);
}

}  // namespace reprise::cuda
