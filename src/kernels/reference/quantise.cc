// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/reference/matrix.h"

namespace reprise::reference {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint32_t kSmallestBits = 0x0D800000;  // 2^-100: below, 127 / m could overflow

// One block of n values. The maximum is taken over the bits, where NaN is larger than infinity is
// larger than any number.
float QuantiseBlock(const float* x, int n, int8_t* q) {
  uint32_t max_bits = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF;
    if (bits > max_bits) max_bits = bits;
  }
  if (max_bits < kSmallestBits || max_bits >= kInfinityBits) {
    for (int i = 0; i < n; ++i) q[i] = 0;
    return max_bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const float max = std::bit_cast<float>(max_bits);
  const float inverse = 127.0f / max;
  // nearbyint under the default rounding mode: half to even.
  for (int i = 0; i < n; ++i) q[i] = int8_t(std::nearbyint(x[i] * inverse));
  return max / 127.0f;
}

void SumBlocks(const int8_t* q, int64_t cols, int n, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += n) {
    int total = 0;
    for (int j = 0; j < n; ++j) total += q[i + j];
    sum[i / n] = int16_t(total);
  }
}

}  // namespace

void Quantise32(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 32) scale[i / 32] = QuantiseBlock(x + i, 32, q + i);
  SumBlocks(q, cols, 32, sum);
}

void Quantise256(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 256) scale[i / 256] = QuantiseBlock(x + i, 256, q + i);
  SumBlocks(q, cols, 16, sum);
}

}  // namespace reprise::reference
