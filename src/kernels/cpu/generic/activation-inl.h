// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/math-inl.h"

// Element-wise ops: entries of KernelTable of the same names.
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

void SwiGlu(const float* gate, const float* up, int64_t n, float* y) {
  Map(gate, up, n, y, [](V16 g, V16 u) { return Mul(Silu(g), u); });
}

void ClampedSwiGlu(const float* gate, const float* up, float alpha, float limit, int64_t n,
                   float* y) {
  const V16 a = Set(alpha), most = Set(limit), least = Set(-limit), one = Set(1);
  Map(gate, up, n, y, [=](V16 gate_in, V16 up_in) {
    const V16 g = Select(Less(most, gate_in), most, gate_in);
    const V16 u = Select(Less(most, up_in), most, Select(Less(up_in, least), least, up_in));
    return Mul(Add(u, one), Mul(g, Sigmoid(Mul(a, g))));
  });
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

void ScaleAdd(const float* x, float factor, int64_t n, float* y) {
  const V16 f = Set(factor);
  Map(x, y, n, y, [f](V16 a, V16 old) { return Fma(f, a, old); });
}

void GeGlu(const float* gate, const float* up, int64_t n, float* y) {
  Map(gate, up, n, y, [](V16 g, V16 u) { return Mul(Gelu(g), u); });
}

void GeluRow(const float* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) { return Gelu(a); });
}

void GeluErfRow(const float* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) { return GeluErf(a); });
}

void ReluSquared(const float* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) {
    const V16 r = Select(Less(a, Zero()), Zero(), a);
    return Mul(r, r);
  });
}

void SoftcapRow(const float* x, float cap, int64_t n, float* y) {
  const V16 c = Set(cap);
  Map(x, n, y, [c](V16 a) { return Mul(c, Tanh(Div(a, c))); });
}

void SoftplusRow(const float* x, const float* bias, int64_t n, float* y) {
  Map(x, bias, n, y, [](V16 a, V16 b) { return Softplus(Add(a, b)); });
}

void SigmoidRow(const float* x, const float* bias, int64_t n, float* y) {
  Map(x, bias, n, y, [](V16 a, V16 b) { return Sigmoid(Add(a, b)); });
}

void Lerp(const float* a, const float* b, const float* t, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 from = LoadPartial(a + i, lanes);
    const V16 way = Sub(LoadPartial(b + i, lanes), from);
    StorePartial(y + i, Fma(way, LoadPartial(t + i, lanes), from), lanes);
  }
}

void RwkvDecay(const float* x, const float* bias, int64_t n, float* y) {
  Map(x, bias, n, y,
      [](V16 a, V16 b) { return Exp(Neg(Mul(Set(0.606531f), Sigmoid(Add(a, b))))); });
}

void DotScaleAdd(const float* a, const float* b, const float* w, const float* v, int64_t n,
                 float* y) {
  V16 sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 product = Mul(LoadPartial(a + i, lanes), LoadPartial(b + i, lanes));
    const V16 next = Fma(product, LoadPartial(w + i, lanes), sum);
    sum = lanes == 16 ? next : Select(Lanes(0, lanes), next, sum);
  }
  const V16 factor = Set(SumLanes(sum));
  Map(v, y, n, y, [factor](V16 value, V16 old) { return Fma(factor, value, old); });
}

void ExpRow(const float* x, int64_t n, float* y) {
  Map(x, n, y, [](V16 a) { return Exp(a); });
}

void Softmax(const float* x, int64_t n, float* y) {
  const V16 lowest = Set(-__builtin_inff());
  V16 most = lowest;
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    most = Max(Select(Lanes(0, lanes), LoadPartial(x + i, lanes), lowest), most);
  }
  const V16 max = Set(MaxLanes(most));
  V16 sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    const V16 e = Exp(Sub(LoadPartial(x + i, lanes), max));
    sum = Add(sum, Select(Lanes(0, lanes), e, Zero()));
    StorePartial(y + i, e, lanes);
  }
  const V16 factor = Set(1.0f / SumLanes(sum));
  Map(y, n, y, [factor](V16 e) { return Mul(e, factor); });
}

void OverlayActivations(KernelTable* table) {
  table->swiglu = SwiGlu;
  table->clamped_swiglu = ClampedSwiGlu;
  table->silu = SiluRow;
  table->sigmoid_mul = SigmoidMul;
  table->add = AddRow;
  table->mul = MulRow;
  table->scale = ScaleRow;
  table->scale_add = ScaleAdd;
  table->geglu = GeGlu;
  table->gelu = GeluRow;
  table->gelu_erf = GeluErfRow;
  table->relu_squared = ReluSquared;
  table->softcap = SoftcapRow;
  table->softplus = SoftplusRow;
  table->sigmoid = SigmoidRow;
  table->lerp = Lerp;
  table->rwkv_decay = RwkvDecay;
  table->dot_scale_add = DotScaleAdd;
  table->exp = ExpRow;
  table->softmax = Softmax;
}

}  // namespace
}  // namespace reprise::cpu
