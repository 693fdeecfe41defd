// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/math.h"

#include <limits>

namespace reprise::reference {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rounds to the nearest integer for |x| < 2^51: the sum has no bits left below one.
double RoundToInteger(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

// 2^n for n in [-1022, 1023].
double PowerOfTwo(int n) { return std::bit_cast<double>(uint64_t(n + 1023) << 52); }

}  // namespace

double ExpDouble(double x) {
  if (!(x >= -708)) return x < -708 ? 0.0 : x;
  if (x > 710) return std::numeric_limits<double>::infinity();
  const double n = RoundToInteger(x * 0x1.71547652b82fep0);
  double r = std::fma(n, -0x1.62e42feep-1, x);
  r = std::fma(n, -0x1.a39ef35793c76p-33, r);
  // Taylor series to r^13 on |r| <= 0.35: the rest is below 2^-57.
  double p = 1.0 / 6227020800.0;
  p = std::fma(p, r, 1.0 / 479001600.0);
  p = std::fma(p, r, 1.0 / 39916800.0);
  p = std::fma(p, r, 1.0 / 3628800.0);
  p = std::fma(p, r, 1.0 / 362880.0);
  p = std::fma(p, r, 1.0 / 40320.0);
  p = std::fma(p, r, 1.0 / 5040.0);
  p = std::fma(p, r, 1.0 / 720.0);
  p = std::fma(p, r, 1.0 / 120.0);
  p = std::fma(p, r, 1.0 / 24.0);
  p = std::fma(p, r, 1.0 / 6.0);
  p = std::fma(p, r, 0.5);
  p = std::fma(p, r, 1.0);
  p = std::fma(p, r, 1.0);
  const int whole = static_cast<int>(n);
  const int half = whole / 2;  // 2^1024 is no double
  return p * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

double LogDouble(double x) {
  if (!(x >= std::numeric_limits<double>::min()) || x == std::numeric_limits<double>::infinity()) {
    return kNaN;
  }
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh((m - 1) / (m + 1)).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp0) {
    m *= 0.5;
    ++e;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 23.0;  // |s| <= 0.172: z^12 / 25 is below 2^-65
  for (int k = 21; k >= 3; k -= 2) p = std::fma(p, z, 1.0 / k);
  const double twice = s + s;
  const double log_m = std::fma(p * z, twice, twice);
  const double low = std::fma(double(e), 0x1.a39ef35793c76p-33, log_m);
  return std::fma(double(e), 0x1.62e42feep-1, low);
}

double PowDouble(double base, double exponent) { return ExpDouble(exponent * LogDouble(base)); }

}  // namespace reprise::reference
