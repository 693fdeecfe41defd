// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/activation-inl.h"
#include "kernels/cpu/generic/lanes-inl.h"

// Norms, conversions and rotary embedding: entries of KernelTable of the same names.
namespace reprise::cpu {
namespace {

inline float SumOfSquares(const float* x, int64_t n) {
  V16 sum = Zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const V16 v = Load(x + i);
    sum = Fma(v, v, sum);
  }
  if (i < n) {
    const V16 v = LoadPartial(x + i, static_cast<int>(n - i));
    sum = Fma(v, v, sum);
  }
  return SumLanes(sum);
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const float r = 1.0f / __builtin_sqrtf(SumOfSquares(x, n) / static_cast<float>(n) + eps);
  const V16 factor = Set(r);
  Map(x, weight, n, y, [factor](V16 a, V16 w) { return Mul(Mul(a, factor), w); });
}

void L2Norm(const float* x, float eps, float scale, int64_t n, float* y) {
  const float r = 1.0f / __builtin_sqrtf(SumOfSquares(x, n) + eps);
  const V16 factor = Set(r);
  const V16 last = Set(scale);
  Map(x, n, y, [factor, last](V16 a) { return Mul(Mul(a, factor), last); });
}

// Deviations from the mean; lanes past the end are 0.
inline V16 Deviation(const float* x, int lanes, V16 mean) {
  if (lanes == 16) return Sub(Load(x), mean);
  return Select(Lanes(0, lanes), Sub(LoadPartial(x, lanes), mean), Zero());
}

void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
               float* y) {
  V16 sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    sum = Add(sum, n - i < 16 ? LoadPartial(x + i, static_cast<int>(n - i)) : Load(x + i));
  }
  const V16 mean = Set(SumLanes(sum) / static_cast<float>(n));
  V16 squares = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const V16 d = Deviation(x + i, n - i < 16 ? static_cast<int>(n - i) : 16, mean);
    squares = Fma(d, d, squares);
  }
  const float variance = SumLanes(squares) / static_cast<float>(n);
  const V16 factor = Set(1.0f / __builtin_sqrtf(variance + eps));
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 scaled = Mul(Deviation(x + i, lanes, mean), factor);
    const V16 w = LoadPartial(weight + i, lanes);
    const V16 out = bias != nullptr ? Fma(scaled, w, LoadPartial(bias + i, lanes)) : Mul(scaled, w);
    StorePartial(y + i, out, lanes);
  }
}

void F32ToF16(const float* x, int64_t n, uint16_t* y) {
  Map(x, n, y, [](V16 a) { return a; });
}

void F16ToF32(const uint16_t* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) { return a; });
}

void BF16ToF32(const uint16_t* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, LoadBF16(x + i));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) StorePartial(y + i, LoadPartialBF16(x + i, rest), rest);
}

void Rope(float* x, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; i += 16) {
    const int n = half - i < 16 ? half - i : 16;
    const V16 c = n == 16 ? Load(cos + i) : LoadPartial(cos + i, n);
    const V16 s = n == 16 ? Load(sin + i) : LoadPartial(sin + i, n);
    const V16 a = n == 16 ? Load(x + i) : LoadPartial(x + i, n);
    const V16 b = n == 16 ? Load(x + half + i) : LoadPartial(x + half + i, n);
    const V16 first = Fma(a, c, Neg(Mul(b, s)));
    const V16 second = Fma(b, c, Mul(a, s));
    if (n == 16) {
      Store(x + i, first);
      Store(x + half + i, second);
    } else {
      StorePartial(x + i, first, n);
      StorePartial(x + half + i, second, n);
    }
  }
}

float MultiplyAdds(int64_t n) {
  // Tiles that fit the registers, one after another.
  constexpr int kTile = kPeakVectors;
  static_assert(16 % kTile == 0);
  float total = 0;
  for (int tile = 0; tile < 16 / kTile; ++tile) {
    V16 sum[kTile];
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) sum[i] = Set(static_cast<float>(i));
    for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 16
      for (int i = 0; i < kTile; ++i) sum[i] = Fma(Set(0.999f), Set(1e-4f), sum[i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) total += SumLanes(sum[i]);
  }
  return total;
}

// SinCos of kernels/reference/math.h, without branches so that the compiler can use vectors.
inline void SinCos(double x, double* sin, double* cos) {
  const double shifted = __builtin_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  double r = __builtin_fma(n, -0x1.921fb54442d18p0, x);
  r = __builtin_fma(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;
  double s = 1.0 / 355687428096000.0;
  s = __builtin_fma(s, z, -1.0 / 1307674368000.0);
  s = __builtin_fma(s, z, 1.0 / 6227020800.0);
  s = __builtin_fma(s, z, -1.0 / 39916800.0);
  s = __builtin_fma(s, z, 1.0 / 362880.0);
  s = __builtin_fma(s, z, -1.0 / 5040.0);
  s = __builtin_fma(s, z, 1.0 / 120.0);
  s = __builtin_fma(s, z, -1.0 / 6.0);
  s = __builtin_fma(s * z, r, r);
  double c = -1.0 / 6402373705728000.0;
  c = __builtin_fma(c, z, 1.0 / 20922789888000.0);
  c = __builtin_fma(c, z, -1.0 / 87178291200.0);
  c = __builtin_fma(c, z, 1.0 / 479001600.0);
  c = __builtin_fma(c, z, -1.0 / 3628800.0);
  c = __builtin_fma(c, z, 1.0 / 40320.0);
  c = __builtin_fma(c, z, -1.0 / 720.0);
  c = __builtin_fma(c, z, 1.0 / 24.0);
  c = __builtin_fma(c, z, -0.5);
  c = __builtin_fma(c, z, 1.0);
  uint64_t quadrant;
  __builtin_memcpy(&quadrant, &shifted, sizeof(quadrant));
  const bool swap = (quadrant & 1) != 0;
  const double first = swap ? c : s;
  const double second = swap ? s : c;
  const double limit = __builtin_fabs(x) <= 0x1p30 ? 1.0 : __builtin_nan("");
  *sin = ((quadrant & 2) != 0 ? -first : first) * limit;
  *cos = (((quadrant + 1) & 2) != 0 ? -second : second) * limit;
}

void RopeAngles(float position, const float* inverse_frequency, int half, float* cos, float* sin) {
  for (int i = 0; i < half; ++i) {
    double s;
    double c;
    SinCos(static_cast<double>(position * inverse_frequency[i]), &s, &c);
    cos[i] = static_cast<float>(c);
    sin[i] = static_cast<float>(s);
  }
}

void OverlayRows(KernelTable* table) {
  table->rms_norm = RmsNorm;
  table->l2_norm = L2Norm;
  table->layer_norm = LayerNorm;
  table->rope = Rope;
  table->rope_angles = RopeAngles;
  table->multiply_adds = MultiplyAdds;
  table->f32_to_f16 = F32ToF16;
  table->f16_to_f32 = F16ToF32;
  table->bf16_to_f32 = BF16ToF32;
}

}  // namespace
}  // namespace reprise::cpu
