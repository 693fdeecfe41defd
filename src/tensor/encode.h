// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/blocks.h"

namespace reprise {

// One block from as many values as it holds. Private to tensor/: QuantiseRow is the way in.
// REQUIRES: every value is finite.
#define REPRISE_ENCODE(name, ...) void Encode(const float* in, Block##name* block);
REPRISE_SMALL_TYPES(REPRISE_ENCODE)
REPRISE_SUPER_TYPES(REPRISE_ENCODE)
REPRISE_TERNARY_TYPES(REPRISE_ENCODE)
#undef REPRISE_ENCODE

// Limits first, so that no value, NaN included, makes the conversion undefined. NaN becomes `low`.
inline float Clamp(float value, float low, float high) {
  const float above = value > low ? value : low;
  return above < high ? above : high;
}

// To the nearest integer in [low, high], ties to even. REQUIRES: both are below 2^22 in magnitude.
inline float NearestClamped(float value, float low, float high) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: at this size one ulp is 1
  return (Clamp(value, low, high) + kShift) - kShift;
}
inline int RoundClamped(float value, float low, float high) {
  return static_cast<int>(NearestClamped(value, low, high));
}

}  // namespace reprise
