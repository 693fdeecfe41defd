// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/blocks.h"

namespace reprise {

// One block from as many values as it holds. Private to tensor/: QuantiseRow is the way in.
// REQUIRES: every value is finite.
void Encode(const float* in, BlockQ8_0* block);
void Encode(const float* in, BlockQ4_0* block);
void Encode(const float* in, BlockQ4_1* block);
void Encode(const float* in, BlockQ5_0* block);
void Encode(const float* in, BlockQ5_1* block);
void Encode(const float* in, BlockQ2_K* block);
void Encode(const float* in, BlockQ3_K* block);
void Encode(const float* in, BlockQ4_K* block);
void Encode(const float* in, BlockQ5_K* block);
void Encode(const float* in, BlockQ6_K* block);
void Encode(const float* in, BlockIQ4_NL* block);
void Encode(const float* in, BlockIQ4_XS* block);
void Encode(const float* in, BlockMXFP4* block);

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
