// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/host_device.h"

// Transcendental functions as the specification of their bits: only +, -, *, /, sqrt, fma and bit
// operations, in one order, so that a vector version gives the same result in every lane. They use
// nothing of libm but std::fma and std::sqrt, which IEEE defines exactly.
//
// NaN in gives NaN out (sign and payload are not specified). Errors are against the exact value,
// measured over all floats by math_test.cc. Device code calls the same functions (compiled without
// contraction of a * b + c).
namespace reprise::reference {

// Exp of an x that is known to be at most 89, or NaN: one instruction less.
REPRISE_HOST_DEVICE inline float ExpOfAtMost89(float x) {
  // n = x / ln 2 rounded, in the low bits of t, plus 126.
  const float t = std::fma(x, 0x1.715476p0f, 0x1.8000fcp23f);
  const float n = t - 0x1.8000fcp23f;
  // r = x - n * ln 2; the first product is exact.
  float r = std::fma(n, -0x1.63p-1f, x);
  r = std::fma(n, 0x1.bd0106p-13f, r);
  // 2 e^r, so that the power of two below is a normal number for every n in [-125, 128].
  float p = 0x1.6a215cp-9f;
  p = std::fma(p, r, 0x1.123b9ap-6f);
  p = std::fma(p, r, 0x1.5558fcp-4f);
  p = std::fma(p, r, 0x1.55549p-2f);
  p = std::fma(p, r, 0x1.fffffcp-1f);
  p = std::fma(p, r, 2.0f);
  p = std::fma(p, r, 2.0f);
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(t) << 23);
  return x < -86.98f ? 0.0f : p * power;
}

// e^x within 1 ulp. Below -86.98 (e^x < 1.7e-38, at the end of the normal range) the result is +0;
// above 88.72 it is +inf.
REPRISE_HOST_DEVICE inline float Exp(float x) {
  return ExpOfAtMost89(89.0f < x ? 89.0f : x);  // NaN stays
}

// ln(1 + u) for u in [0, 1], within 2 ulp: 2 atanh(u / (2 + u)).
REPRISE_HOST_DEVICE inline float Log1pUnit(float u) {
  const float s = u / (2.0f + u);
  const float z = s * s;
  float p = 0x1.f1aea8p-4f;
  p = std::fma(p, z, 0x1.b6d6b4p-4f);
  p = std::fma(p, z, 0x1.250972p-3f);
  p = std::fma(p, z, 0x1.9996a8p-3f);
  p = std::fma(p, z, 0x1.555558p-2f);
  const float twice = s + s;
  return std::fma(p * z, twice, twice);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), within 3 ulp. Equals x for x > 17.4 and +0 below
// -86.98.
REPRISE_HOST_DEVICE inline float Softplus(float x) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF);
  const float positive = 0.0f < x ? x : 0.0f;
  return positive + Log1pUnit(Exp(-magnitude));
}

// 1 / (1 + e^-x), within 2.5 ulp.
REPRISE_HOST_DEVICE inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// x / (1 + e^-x), within 2.5 ulp.
REPRISE_HOST_DEVICE inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

// The gate of gpt-oss: clamped, with one added to what it multiplies. NaN stays NaN.
REPRISE_HOST_DEVICE inline float ClampedSwiGlu(float gate, float up, float alpha, float limit) {
  const float g = limit < gate ? limit : gate;
  const float u = limit < up ? limit : up < -limit ? -limit : up;
  return (u + 1.0f) * (g * Sigmoid(alpha * g));
}

// Odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1) with the sign of x; within 2 ulp.
REPRISE_HOST_DEVICE inline float Tanh(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFF);
  const float z = x * x;
  float p = -0x1.76ac3p-8f;
  p = std::fma(p, z, 0x1.5256dcp-6f);
  p = std::fma(p, z, -0x1.b8444ap-5f);
  p = std::fma(p, z, 0x1.110768p-3f);
  p = std::fma(p, z, -0x1.555534p-2f);
  const float small = std::fma(p * z, magnitude, magnitude);
  const float large = 1.0f - 2.0f / (Exp(magnitude + magnitude) + 1.0f);
  const float result = magnitude < 0.625f ? small : large;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | (bits & 0x80000000));
}

// Gaussian error linear unit in its tanh form.
REPRISE_HOST_DEVICE inline float Gelu(float x) {
  const float inner = std::fma(0.044715f * (x * x), x, x);
  return (0.5f * x) * (1.0f + Tanh(0.79788456f * inner));
}

// Gaussian error linear unit itself: erf by Abramowitz and Stegun 7.1.26, within 2e-7.
REPRISE_HOST_DEVICE inline float GeluErf(float x) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF);
  const float z = magnitude * 0.70710678f;
  const float t = 1.0f / std::fma(0.3275911f, z, 1.0f);
  float p = 1.061405429f;
  p = std::fma(p, t, -1.453152027f);
  p = std::fma(p, t, 1.421413741f);
  p = std::fma(p, t, -0.284496736f);
  p = std::fma(p, t, 0.254829592f);
  const float tail = (p * t) * Exp(-(z * z));  // 1 - erf(z)
  return (0.5f * x) * (x < 0 ? tail : 2.0f - tail);
}

// Double precision, for angles and for constants computed while loading. Errors are a few ulp of
// double, so a result rounded to f32 is the nearest float in all but about one case in 10^8.

// Taylor series on |r| <= pi / 4 (the next terms are below 2^-60).
REPRISE_HOST_DEVICE inline double SinPolynomial(double r, double z) {
  double p = 1.0 / 355687428096000.0;  // 17!
  p = std::fma(p, z, -1.0 / 1307674368000.0);
  p = std::fma(p, z, 1.0 / 6227020800.0);
  p = std::fma(p, z, -1.0 / 39916800.0);
  p = std::fma(p, z, 1.0 / 362880.0);
  p = std::fma(p, z, -1.0 / 5040.0);
  p = std::fma(p, z, 1.0 / 120.0);
  p = std::fma(p, z, -1.0 / 6.0);
  return std::fma(p * z, r, r);
}

REPRISE_HOST_DEVICE inline double CosPolynomial(double z) {
  double p = -1.0 / 6402373705728000.0;  // 18!
  p = std::fma(p, z, 1.0 / 20922789888000.0);
  p = std::fma(p, z, -1.0 / 87178291200.0);
  p = std::fma(p, z, 1.0 / 479001600.0);
  p = std::fma(p, z, -1.0 / 3628800.0);
  p = std::fma(p, z, 1.0 / 40320.0);
  p = std::fma(p, z, -1.0 / 720.0);
  p = std::fma(p, z, 1.0 / 24.0);
  p = std::fma(p, z, -0.5);
  return std::fma(p, z, 1.0);
}

struct SinCosResult {
  double sin;
  double cos;
};
// Both for |x| <= 2^30; larger angles do not occur and give NaN.
REPRISE_HOST_DEVICE inline SinCosResult SinCos(double x) {
  if (!(std::bit_cast<double>(std::bit_cast<uint64_t>(x) << 1 >> 1) <= 0x1p30)) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  // r = x - n * pi / 2 with pi / 2 in three doubles.
  const double shifted = std::fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  double r = std::fma(n, -0x1.921fb54442d18p0, x);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;
  const double sin = SinPolynomial(r, z);
  const double cos = CosPolynomial(z);
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted);  // its low bits are n
  const double first = (quadrant & 1) != 0 ? cos : sin;
  const double second = (quadrant & 1) != 0 ? sin : cos;
  return {(quadrant & 2) != 0 ? -first : first, ((quadrant + 1) & 2) != 0 ? -second : second};
}

double ExpDouble(double x);  // +0 below -708, +inf above 709.78
double LogDouble(double x);  // normal numbers > 0; others: NaN
// base^exponent = e^(exponent * ln base). REQUIRES: base > 0.
double PowDouble(double base, double exponent);

}  // namespace reprise::reference
