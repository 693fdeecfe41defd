// SPDX-License-Identifier: Apache-2.0
// Products with f32, f16 and bf16 weights.
#include <arm_neon.h>

#include "kernels/cpu/generic/matrix_float-inl.h"
#include "kernels/cpu/neon/matrix.h"

namespace reprise::cpu {
namespace {

struct FloatNeon {
  using Vector = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 2, kTokens = 3;

  static inline Vector Zero() { return vdupq_n_f32(0); }
  static inline Vector Load(const float* p) { return vld1q_f32(p); }
  static inline Vector LoadPartial(const float* p, int count) {
    float whole[4] = {};
    for (int i = 0; i < count; ++i) whole[i] = p[i];
    return vld1q_f32(whole);
  }
  static inline Vector Fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }
  static inline Vector FmaPartial(Vector a, Vector b, Vector c, int count) {
    alignas(16) static constexpr int32_t kIndex[4] = {0, 1, 2, 3};
    const uint32x4_t exists = vcltq_s32(vld1q_s32(kIndex), vdupq_n_s32(count));
    return vbslq_f32(exists, vfmaq_f32(c, a, b), c);
  }
  static inline float Sum(const Vector (&parts)[4]) {
    const float32x4_t four =
        vaddq_f32(vaddq_f32(parts[0], parts[2]), vaddq_f32(parts[1], parts[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
};

struct LoadF32 {
  static constexpr int kBytes = 4;
  static inline float32x4_t Load(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
};
struct LoadF16 {
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const uint8_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
  }
};
struct LoadBF16 {
  static constexpr int kBytes = 2;
  static inline float32x4_t Load(const uint8_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
  }
};

}  // namespace

void neon::SetFloat(KernelTable* table) {
  SetFloats<FloatNeon, LoadF32>("neon", DType::kF32, table);
  SetFloats<FloatNeon, LoadF16>("neon", DType::kF16, table);
  SetFloats<FloatNeon, LoadBF16>("neon", DType::kBF16, table);
}

}  // namespace reprise::cpu
