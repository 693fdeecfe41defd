// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/reference/math.h"

// How a token is drawn from logits, as the specification of the choice: the same on every device.
//
// Tokens are in order, the largest logit first, of equal ones the lower token. A token has the
// distance (largest - logit) / temperature from the first and the weight e^-distance, as a whole
// number of 2^-45: sums of weights are exact, so it does not matter in which order they are added.
// Tokens 30 and more away have no weight: e^-30 each, less in sum than what rounding a float does.
//
// Filters keep a beginning of the order, of `count` tokens with the weight `mass`; it is never
// empty.
//   top-k   at most k tokens
//   top-p   as few as have p of the mass that is kept so far
//   min-p   those whose distance is at most -ln p (rounded to f32)
// Then, for a random u in [0, 1): the first token with which the weights so far are more than u of
// the mass.
namespace reprise::reference {

inline constexpr float kChoiceFarthest = 30;  // in temperatures
// Tokens fall into buckets of equal distance, 16 for each factor of e in weight; the last one is
// for those without weight.
inline constexpr float kChoicePerUnit = 16;
inline constexpr int kChoiceBuckets = 482;
inline constexpr double kChoiceUnit = 0x1p-45;  // of weights

// At most 60; -inf and what is no number are as far as that.
REPRISE_HOST_DEVICE inline float ChoiceDistance(float largest, float logit, float temperature) {
  const float distance = (largest - logit) / temperature;
  return distance < 2 * kChoiceFarthest ? distance : 2 * kChoiceFarthest;
}

REPRISE_HOST_DEVICE inline int ChoiceBucket(float distance) {
  const int bucket = static_cast<int>(distance * kChoicePerUnit);
  return bucket < kChoiceBuckets - 1 ? bucket : kChoiceBuckets - 1;
}

// Of e = Exp(-distance).
REPRISE_HOST_DEVICE inline uint64_t ChoiceWeight(float e) {
  return static_cast<uint64_t>(e * 0x1p45f);
}

// What top-p asks for: at least one.
REPRISE_HOST_DEVICE inline uint64_t ChoiceShare(double share, uint64_t mass) {
  const auto wanted = static_cast<uint64_t>(share * static_cast<double>(mass));
  return wanted == 0 ? 1 : wanted < mass ? wanted : mass;
}

// The token that u falls to is the first with which the weights so far are at least this.
REPRISE_HOST_DEVICE inline uint64_t ChoiceDraw(double u, uint64_t mass) {
  const auto below = static_cast<uint64_t>(u * static_cast<double>(mass));
  return below < mass ? below + 1 : mass;
}

}  // namespace reprise::reference
