// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/math-inl.h"

// Norms, element-wise ops and rotary embedding: entries of KernelTable of the same names.
namespace reprise::cpu {
namespace {

// y = f(x), sixteen at a time; the last may be fewer.
template <typename In, typename Out, typename F>
inline void Map(const In* x, int64_t n, Out* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, f(Load(x + i)));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) StorePartial(y + i, f(LoadPartial(x + i, rest)), rest);
}

template <typename F>
inline void Map(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, f(Load(a + i), Load(b + i)));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) StorePartial(y + i, f(LoadPartial(a + i, rest), LoadPartial(b + i, rest)), rest);
}

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

void SwiGlu(const float* gate, const float* up, int64_t n, float* y) {
  Map(gate, up, n, y, [](V16 g, V16 u) { return Mul(Silu(g), u); });
}

void SiluRow(const float* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) { return Silu(a); });
}

void SigmoidMul(const float* gate, const float* x, int64_t n, float* y) {
  Map(gate, x, n, y, [](V16 g, V16 a) { return Mul(Sigmoid(g), a); });
}

void AddRow(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](V16 s, V16 t) { return Add(s, t); });
}

void MulRow(const float* a, const float* b, int64_t n, float* y) {
  Map(a, b, n, y, [](V16 s, V16 t) { return Mul(s, t); });
}

void ScaleRow(const float* x, float factor, int64_t n, float* y) {
  const V16 f = Set(factor);
  Map(x, n, y, [f](V16 a) { return Mul(a, f); });
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

void OverlayRows(KernelTable* table) {
  table->rms_norm = RmsNorm;
  table->l2_norm = L2Norm;
  table->swiglu = SwiGlu;
  table->silu = SiluRow;
  table->sigmoid_mul = SigmoidMul;
  table->add = AddRow;
  table->mul = MulRow;
  table->scale = ScaleRow;
  table->rope = Rope;
  table->f32_to_f16 = F32ToF16;
  table->f16_to_f32 = F16ToF32;
  table->bf16_to_f32 = BF16ToF32;
}

}  // namespace
}  // namespace reprise::cpu
