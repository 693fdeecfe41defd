// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/gpu/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/half.h"

namespace reprise::reference {
namespace {

constexpr uint32_t kNaNBits = 0x7FFFFFFF;
constexpr int kNoExponent = -100000;

// significand * 2^(exponent - fraction); zero has no exponent.
struct Term {
  bool negative = false;
  bool infinite = false;
  bool nan = false;
  int exponent = kNoExponent;
  uint64_t significand = 0;
};

struct Layout {
  int mantissa;  // bits
  int exponent;  // bits
};
constexpr Layout kF16Layout{10, 5};
constexpr Layout kBF16Layout{7, 8};
constexpr Layout kF32Layout{23, 8};

Term Decode(uint32_t bits, Layout layout) {
  Term term;
  term.negative = (bits >> (layout.mantissa + layout.exponent) & 1) != 0;
  const int field = int(bits >> layout.mantissa & ((1u << layout.exponent) - 1));
  const uint32_t mantissa = bits & ((1u << layout.mantissa) - 1);
  if (field == (1 << layout.exponent) - 1) {
    term.nan = mantissa != 0;
    term.infinite = mantissa == 0;
    return term;
  }
  const int bias = (1 << (layout.exponent - 1)) - 1;
  term.significand = field == 0 ? mantissa : mantissa | 1u << layout.mantissa;
  if (term.significand != 0) term.exponent = (field == 0 ? 1 : field) - bias;
  return term;
}

Term Multiply(const Term& a, const Term& b) {
  Term product;
  product.negative = a.negative != b.negative;
  const bool a_zero = !a.nan && !a.infinite && a.significand == 0;
  const bool b_zero = !b.nan && !b.infinite && b.significand == 0;
  product.nan = a.nan || b.nan || (a.infinite && b_zero) || (b.infinite && a_zero);
  product.infinite = !product.nan && (a.infinite || b.infinite);
  if (product.nan || product.infinite || a_zero || b_zero) return product;
  product.significand = a.significand * b.significand;
  product.exponent = a.exponent + b.exponent;
  return product;
}

// magnitude * 2^exponent, truncated toward zero.
float Truncate(bool negative, uint64_t magnitude, int exponent) {
  const uint32_t sign = negative ? 0x80000000u : 0;
  if (magnitude == 0) return 0.0f;
  const int width = int(std::bit_width(magnitude));
  // The last place that a float of this size has: denormals end at 2^-149.
  const int last = std::max(exponent + width - 24, -149);
  const int shift = last - exponent;
  const uint64_t kept = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (kept == 0) return 0.0f;
  if (last + 23 > 127) return std::bit_cast<float>(sign | 0x7F800000u);
  // Without its leading one a normal number's field is last + 150; a denormal has field 0.
  const uint32_t field = kept >> 23 != 0 ? uint32_t(last + 150) : 0;
  return std::bit_cast<float>(sign | field << 23 | (uint32_t(kept) & 0x7FFFFF));
}

}  // namespace

float TensorStep(TensorCore core, Half type, const uint16_t* a, const uint16_t* b, float c) {
  const int fraction = core.fraction, pairs = core.step;
  const Layout layout = type == Half::kF16 ? kF16Layout : kBF16Layout;
  Term terms[kTensorStep + 1];
  for (int i = 0; i < pairs; ++i) {
    terms[i] = Multiply(Decode(a[i], layout), Decode(b[i], layout));
    terms[i].significand <<= fraction - 2 * layout.mantissa;
  }
  Term& last = terms[pairs];
  last = Decode(std::bit_cast<uint32_t>(c), kF32Layout);
  last.significand <<= fraction - kF32Layout.mantissa;

  int largest = kNoExponent;
  bool nan = false, plus = false, minus = false;
  for (const Term& term : std::span(terms, size_t(pairs) + 1)) {
    largest = std::max(largest, term.exponent);
    nan |= term.nan;
    (term.negative ? minus : plus) |= term.infinite;
  }
  if (nan || (plus && minus)) return std::bit_cast<float>(kNaNBits);
  if (plus || minus) return std::bit_cast<float>(plus ? 0x7F800000u : 0xFF800000u);

  int64_t sum = 0;
  for (const Term& term : std::span(terms, size_t(pairs) + 1)) {
    const int shift = largest - term.exponent;
    const int64_t kept = shift < 64 ? int64_t(term.significand >> shift) : 0;
    sum += term.negative ? -kept : kept;
  }
  return Truncate(sum < 0, uint64_t(sum < 0 ? -sum : sum), largest - fraction);
}

float TensorChain(TensorCore core, Half type, const uint16_t* a, const uint16_t* b, int64_t n,
                  float sum) {
  int64_t k = 0;
  for (; k + core.step <= n; k += core.step) sum = TensorStep(core, type, a + k, b + k, sum);
  if (k == n) return sum;
  uint16_t rest_a[kTensorStep] = {};
  uint16_t rest_b[kTensorStep] = {};
  std::copy(a + k, a + n, rest_a);
  std::copy(b + k, b + n, rest_b);
  return TensorStep(core, type, rest_a, rest_b, sum);
}

float TensorDot(TensorCore core, const uint16_t* a, const uint16_t* b, int64_t n) {
  float total = 0;
  for (int64_t k = 0; k < n; k += kTensorSlice) {
    const float slice =
        TensorChain(core, Half::kF16, a + k, b + k, std::min<int64_t>(kTensorSlice, n - k));
    total = k == 0 ? slice : total + slice;
  }
  return total;
}

float RoundRow(std::span<const float> x, uint16_t* out) {
  float scale = 1;
  float largest = 0;
  bool finite = true;
  for (const float value : x) {
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::fabs(value));
  }
  // 65520 is the smallest number that rounds to infinity.
  if (finite && largest >= 65520.0f) {
    int exponent = 0;
    std::frexp(largest, &exponent);  // largest < 2^exponent
    scale = std::ldexp(1.0f, exponent - 15);
  }
  const float inverse = 1 / scale;  // a power of two: exact
  for (size_t i = 0; i < x.size(); ++i) out[i] = F32ToF16(x[i] * inverse);
  return scale;
}

}  // namespace reprise::reference
