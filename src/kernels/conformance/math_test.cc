// SPDX-License-Identifier: Apache-2.0
// Proves that our own exp, tanh, sin... are as accurate as their comments say (against libm in
// double precision or more, over a dense sample of all floats) and that they treat infinities, NaN
// and the ends of their ranges as stated.
#include "kernels/reference/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace reprise::reference {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distance between a float and an exact value, in units in the last place of the exact value.
double Ulps(float got, double exact) {
  if (std::isnan(got) || std::isinf(got)) return std::fabs(exact) > 3.4028235e38 ? 0 : 1e9;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(static_cast<double>(got) - exact) / ulp;
}

// The largest error of `f` over floats in [low, high], every `step`th.
template <typename F, typename Exact>
double WorstUlps(float low, float high, uint32_t step, F f, Exact exact) {
  double worst = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    worst = std::max(worst, Ulps(f(x), exact(static_cast<double>(x))));
  }
  return worst;
}

TEST(Math, Exp) {
  EXPECT_LT(WorstUlps(-86.97f, 88.72f, 1009, Exp, [](double x) { return std::exp(x); }), 1.0);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(-87.0f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_FALSE(std::signbit(Exp(-kInf)));
  EXPECT_GT(Exp(-86.97f), std::numeric_limits<float>::min());
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(1e30f), kInf);
  EXPECT_EQ(Exp(88.73f), kInf);
  EXPECT_LT(Exp(88.72f), kInf);
  EXPECT_TRUE(std::isnan(Exp(kNaN)));
}

TEST(Math, ExpIsMonotonicNearItsBreaks) {
  // Where n changes, the polynomial is used at its ends.
  for (int n = -120; n < 120; ++n) {
    float x = static_cast<float>((n + 0.5) * std::log(2.0));
    for (int i = 0; i < 20; ++i) x = std::nextafter(x, -kInf);
    for (int i = 0; i < 40; ++i) {
      const float next = std::nextafter(x, kInf);
      EXPECT_LE(Exp(x), Exp(next) * (1 + 0x1p-23f)) << x;
      x = next;
    }
  }
}

TEST(Math, SigmoidAndSilu) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(WorstUlps(-86, 88, 1009, Sigmoid, sigmoid), 2.5);
  const auto silu = [&](double x) { return x * sigmoid(x); };
  EXPECT_LT(WorstUlps(-80, 88, 1009, static_cast<float (*)(float)>(Silu), silu), 2.5);
  EXPECT_EQ(Sigmoid(-kInf), 0.0f);
  EXPECT_EQ(Sigmoid(kInf), 1.0f);
  EXPECT_EQ(Silu(kInf), kInf);
  EXPECT_EQ(Silu(-200.0f), 0.0f);
  EXPECT_TRUE(std::isnan(Sigmoid(kNaN)));
  EXPECT_TRUE(std::isnan(Silu(kNaN)));
}

TEST(Math, Softplus) {
  const auto exact = [](double x) {
    return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  };
  EXPECT_LT(WorstUlps(-86, 1e30f, 1009, Softplus, exact), 3.0);
  EXPECT_EQ(Softplus(20.5f), 20.5f);
  EXPECT_EQ(Softplus(kInf), kInf);
  EXPECT_EQ(Softplus(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(Softplus(kNaN)));
}

TEST(Math, Tanh) {
  EXPECT_LT(WorstUlps(-100, 100, 1009, Tanh, [](double x) { return std::tanh(x); }), 2.0);
  EXPECT_EQ(Tanh(kInf), 1.0f);
  EXPECT_EQ(Tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNaN)));
}

TEST(Math, SinCos) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x4E800000; bits += 511) {  // up to 2^30
    const float angle = std::bit_cast<float>(bits);
    const long double x = angle;
    const SinCosResult result = SinCos(angle);
    worst = std::max(worst, static_cast<double>(std::fabs(result.sin - std::sin(x))));
    worst = std::max(worst, static_cast<double>(std::fabs(result.cos - std::cos(x))));
    const SinCosResult mirrored = SinCos(-angle);
    ASSERT_EQ(mirrored.sin, -result.sin);
    ASSERT_EQ(mirrored.cos, result.cos);
  }
  EXPECT_LT(worst, 4e-16);
  EXPECT_TRUE(std::isnan(SinCos(0x1p31).sin));
  EXPECT_TRUE(std::isnan(SinCos(static_cast<double>(kInf)).cos));
  EXPECT_TRUE(std::isnan(SinCos(static_cast<double>(kNaN)).cos));
}

TEST(Math, DoubleExpLogPow) {
  double worst = 0;
  for (double x = -708; x < 709.7; x += 0.0317) {
    const long double exact = std::exp(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(std::fabs(ExpDouble(x) / exact - 1)));
  }
  EXPECT_LT(worst, 4e-16);
  worst = 0;
  for (double x = 1e-300; x < 1e300; x *= 1.0317) {
    const long double exact = std::log(static_cast<long double>(x));
    worst = std::max(worst, static_cast<double>(std::fabs(LogDouble(x) - exact) /
                                                std::max(std::fabs(exact), 0.01L)));
  }
  EXPECT_LT(worst, 4e-16);
  for (const double base : {1e4, 5e5, 1e6, 1e7}) {
    for (int f = 0; f < 64; ++f) {
      const long double exact = std::pow(static_cast<long double>(base), -f / 64.0L);
      EXPECT_NEAR(PowDouble(base, -f / 64.0) / static_cast<double>(exact), 1, 8e-15);
    }
  }
  EXPECT_EQ(ExpDouble(-1000), 0.0);
  EXPECT_EQ(ExpDouble(1000), std::numeric_limits<double>::infinity());
  EXPECT_EQ(LogDouble(1.0), 0.0);
  EXPECT_TRUE(std::isnan(LogDouble(-1.0)));
  EXPECT_TRUE(std::isnan(LogDouble(0.0)));
}

}  // namespace
}  // namespace reprise::reference
