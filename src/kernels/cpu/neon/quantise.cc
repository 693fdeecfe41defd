// SPDX-License-Identifier: Apache-2.0
// Activations to int8 blocks; the rules are those of QuantisedRows in kernels/cpu/table.h.
#include <arm_neon.h>

#include "kernels/cpu/neon/matrix.h"

namespace reprise::cpu::neon {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr uint32_t kSmallestBits = 0x0D800000;  // 2^-100

// Compared as integers, NaN is larger than infinity is larger than any number.
inline uint32_t LargestMagnitude(const float* x, int n) {
  uint32x4_t largest[4] = {};
  for (int i = 0; i < n; i += 16) {
    for (int j = 0; j < 4; ++j) {
      const float32x4_t v = vabsq_f32(vld1q_f32(x + i + 4 * j));
      largest[j] = vmaxq_u32(largest[j], vreinterpretq_u32_f32(v));
    }
  }
  return vmaxvq_u32(
      vmaxq_u32(vmaxq_u32(largest[0], largest[1]), vmaxq_u32(largest[2], largest[3])));
}

inline int8x16_t Round16(const float* x, float inverse) {
  int32x4_t v[4];
  for (int j = 0; j < 4; ++j) v[j] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * j), inverse));
  const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
  const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(v[2]), vreinterpretq_s16_s32(v[3]));
  return vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}

// One block of n values in sums of kSumBlock.
template <int n, int kSumBlock>
inline float QuantiseBlock(const float* x, int8_t* q, int16_t* sum) {
  const uint32_t bits = LargestMagnitude(x, n);
  const bool zero = bits < kSmallestBits, broken = bits >= kInfinityBits;
  if (zero || broken) {
    for (int i = 0; i < n; i += 16) vst1q_s8(q + i, vdupq_n_s8(0));
    for (int i = 0; i < n / kSumBlock; ++i) sum[i] = 0;
    return broken ? __builtin_nanf("") : 0.0f;
  }
  const float max = vget_lane_f32(vreinterpret_f32_u32(vdup_n_u32(bits)), 0);
  const float inverse = 127.0f / max;
  int16_t total = 0;
  for (int i = 0; i < n; i += 16) {
    const int8x16_t v = Round16(x + i, inverse);
    vst1q_s8(q + i, v);
    total = static_cast<int16_t>(total + vaddlvq_s8(v));
    if ((i + 16) % kSumBlock == 0) {
      sum[i / kSumBlock] = total;
      total = 0;
    }
  }
  return max / 127.0f;
}

}  // namespace

void Quantise32(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 32) {
    scale[i / 32] = QuantiseBlock<32, 32>(x + i, q + i, sum + i / 32);
  }
}

void Quantise256(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 256) {
    scale[i / 256] = QuantiseBlock<256, 16>(x + i, q + i, sum + i / 16);
  }
}

}  // namespace reprise::cpu::neon
