// SPDX-License-Identifier: Apache-2.0
#pragma once

// kernels/reference/math.h, sixteen lanes at a time: the same operations in the same order.
namespace reprise::cpu {
namespace {

// Exp without its upper bound. REQUIRES: x <= 89 (or NaN).
inline V16 ExpBounded(V16 x) {
  const V16 shift = Set(0x1.8000fcp23f);
  const V16 t = Fma(x, Set(0x1.715476p0f), shift);
  const V16 n = Sub(t, shift);
  V16 r = Fma(n, Set(-0x1.63p-1f), x);
  r = Fma(n, Set(0x1.bd0106p-13f), r);
  V16 p = Set(0x1.6a215cp-9f);
  p = Fma(p, r, Set(0x1.123b9ap-6f));
  p = Fma(p, r, Set(0x1.5558fcp-4f));
  p = Fma(p, r, Set(0x1.55549p-2f));
  p = Fma(p, r, Set(0x1.fffffcp-1f));
  p = Fma(p, r, Set(2.0f));
  p = Fma(p, r, Set(2.0f));
  return Select(Less(x, Set(-86.98f)), Zero(), Mul(p, ShiftToExponent(t)));
}

inline V16 Exp(V16 x) { return ExpBounded(Min(Set(89.0f), x)); }

inline V16 Log1pUnit(V16 u) {
  const V16 s = Div(u, Add(Set(2.0f), u));
  const V16 z = Mul(s, s);
  V16 p = Set(0x1.f1aea8p-4f);
  p = Fma(p, z, Set(0x1.b6d6b4p-4f));
  p = Fma(p, z, Set(0x1.250972p-3f));
  p = Fma(p, z, Set(0x1.9996a8p-3f));
  p = Fma(p, z, Set(0x1.555558p-2f));
  const V16 twice = Add(s, s);
  return Fma(Mul(p, z), twice, twice);
}

inline V16 Softplus(V16 x) {
  const V16 positive = Select(Less(Zero(), x), x, Zero());
  return Add(positive, Log1pUnit(Exp(Neg(Abs(x)))));
}

inline V16 Sigmoid(V16 x) { return Div(Set(1.0f), Add(Set(1.0f), Exp(Neg(x)))); }

inline V16 Silu(V16 x) { return Div(x, Add(Set(1.0f), Exp(Neg(x)))); }

inline V16 Tanh(V16 x) {
  const V16 magnitude = Abs(x);
  const V16 z = Mul(x, x);
  V16 p = Set(-0x1.76ac3p-8f);
  p = Fma(p, z, Set(0x1.5256dcp-6f));
  p = Fma(p, z, Set(-0x1.b8444ap-5f));
  p = Fma(p, z, Set(0x1.110768p-3f));
  p = Fma(p, z, Set(-0x1.555534p-2f));
  const V16 small = Fma(Mul(p, z), magnitude, magnitude);
  const V16 e = Exp(Add(magnitude, magnitude));
  const V16 large = Sub(Set(1.0f), Div(Set(2.0f), Add(e, Set(1.0f))));
  return OrSign(Select(Less(magnitude, Set(0.625f)), small, large), x);
}

inline V16 Gelu(V16 x) {
  const V16 inner = Fma(Mul(Set(0.044715f), Mul(x, x)), x, x);
  return Mul(Mul(Set(0.5f), x), Add(Set(1.0f), Tanh(Mul(Set(0.79788456f), inner))));
}

inline V16 GeluErf(V16 x) {
  const V16 z = Mul(Abs(x), Set(0.70710678f));
  const V16 t = Div(Set(1.0f), Fma(Set(0.3275911f), z, Set(1.0f)));
  V16 p = Set(1.061405429f);
  p = Fma(p, t, Set(-1.453152027f));
  p = Fma(p, t, Set(1.421413741f));
  p = Fma(p, t, Set(-0.284496736f));
  p = Fma(p, t, Set(0.254829592f));
  const V16 tail = Mul(Mul(p, t), Exp(Neg(Mul(z, z))));
  const V16 whole = Select(Less(x, Zero()), tail, Sub(Set(2.0f), tail));
  return Mul(Mul(Set(0.5f), x), whole);
}

}  // namespace
}  // namespace reprise::cpu
