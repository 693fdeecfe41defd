// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/reference/math.h"

// Powers of two of attention on a GPU (paged_attention.h), for the host and for kernels.
namespace reprise::reference {

// What a score is multiplied by to be an exponent of two, in units of 128 of them. With a soft cap
// it was scaled before.
REPRISE_HOST_DEVICE inline float UnitOfScores(float scale, float softcap) {
  constexpr float kLog2E = 0x1.715476p0f;
  return (softcap != 0 ? kLog2E : scale * kLog2E) * 0x1p-7f;
}
// The least integer that no exponent of scores up to `largest` is above.
REPRISE_HOST_DEVICE inline float TopOfScores(float largest, float unit) {
  return std::ceil(largest * unit * 128.0f);
}
// What is added to exponents so that those at the top are 1: exact while |top| < 2^17.
REPRISE_HOST_DEVICE inline float ShiftOfTop(float top) { return 1.0f - top * 0x1p-7f; }

// Held to [0, 1]; NaN is 0.
REPRISE_HOST_DEVICE inline float Saturate(float x) {
#ifdef __CUDA_ARCH__
  return __saturatef(x);
#else
  return 0.0f < x ? (x < 1.0f ? x : 1.0f) : 0.0f;
#endif
}

// 4 * 2^(exponent of the score - top) within 1.1e-4 of it, a fifth of what rounding to f16 takes;
// 128 below the top and from there down the smallest normal number, which is why it is four times
// the power. Eight instructions, where e^x takes fifteen.
REPRISE_HOST_DEVICE inline float WeightOfScore(float score, float unit, float shift) {
  const float y = Saturate(std::fma(score, unit, shift));
  // The exponent, 128 y - 128, rounded to an integer, in the low bits of t.
  constexpr float kRound = 0x1.8p23f - 128.0f;
  const float t = std::fma(y, 128.0f, kRound);
  const float r = std::fma(y, 128.0f, kRound - t);
  float p = 0x1.c2a218p-3f;
  p = std::fma(p, r, 0x1.f00c4ep-1f);
  p = std::fma(p, r, 0x1.62f5fap1f);
  p = std::fma(p, r, 4.0f);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(t) << 23));
}

// 2^n for an integer n of at most 0, exactly; from -126 down the smallest normal number.
REPRISE_HOST_DEVICE inline float Power2OfInteger(float n) {
  const float least = -126.0f < n ? n : -126.0f;
  const float t = least + 0x1.8p23f;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(t) + 127) << 23);
}

// A sum of weights and that of a sink, 4 * 2^(log2(e) * sink - top): infinite where the sink is far
// above all scores, so that they come to nothing.
REPRISE_HOST_DEVICE inline float SumWithSink(float sum, float sink, float top) {
  constexpr float kLn2 = 0x1.62e43p-1f;
  return sum + 4.0f * Exp(std::fma(-top, kLn2, sink));
}

}  // namespace reprise::reference
