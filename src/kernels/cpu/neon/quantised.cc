// SPDX-License-Identifier: Apache-2.0
// Quantised products for CPUs without dot-product instructions.
#include "kernels/cpu/neon/matrix.h"
#include "kernels/cpu/neon/product256-inl.h"
#include "kernels/cpu/neon/product32-inl.h"

namespace reprise::cpu::neon {
namespace {

struct WideningDot {
  static constexpr int kTokens = 1;
  int32x4_t row[8];

  inline void Start(int32_t bias) {
    const int32x4_t start = vsetq_lane_s32(bias, vdupq_n_s32(0), 0);
#pragma GCC unroll 8
    for (int32x4_t& r : row) r = start;
  }
  // |w| <= 128, |x| <= 127: two products fit 16 bits.
  inline void Add(int pair, int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1) {
    const int16x8_t even =
        vmlal_s8(vmull_s8(vget_low_s8(w0), vget_low_s8(x0)), vget_low_s8(w1), vget_low_s8(x1));
    const int16x8_t odd = vmlal_high_s8(vmull_high_s8(w0, x0), w1, x1);
    row[2 * pair] = vpadalq_s16(row[2 * pair], even);
    row[2 * pair + 1] = vpadalq_s16(row[2 * pair + 1], odd);
  }
  inline int32x4x2_t Sum() const {
    return {{vpaddq_s32(vpaddq_s32(row[0], row[1]), vpaddq_s32(row[2], row[3])),
             vpaddq_s32(vpaddq_s32(row[4], row[5]), vpaddq_s32(row[6], row[7]))}};
  }
};

}  // namespace

void SetQuantised(KernelTable* table) {
  SetMatrix(table, PackedType::kQ8_0, "neon", Run32<Q8_0, WideningDot>);
  SetMatrix(table, PackedType::kQ4_0, "neon", Run32<Q4_0, WideningDot>);
  SetMatrix(table, PackedType::kQ4_1, "neon", Run32<Q4_1, WideningDot>);
  SetMatrix(table, PackedType::kQ5_0, "neon", Run32<Q5_0, WideningDot>);
  SetMatrix(table, PackedType::kQ5_1, "neon", Run32<Q5_1, WideningDot>);
  SetMatrix(table, PackedType::kIQ4_NL, "neon", Run32<IQ4_NL, WideningDot>);
  SetMatrix(table, PackedType::kQ2_K, "neon", Run256<Q2_K, WideningDot>);
  SetMatrix(table, PackedType::kQ3_K, "neon", Run256<Q3_K, WideningDot>);
  SetMatrix(table, PackedType::kQ4_K, "neon", Run256<Q4_K, WideningDot>);
  SetMatrix(table, PackedType::kQ5_K, "neon", Run256<Q5_K, WideningDot>);
  SetMatrix(table, PackedType::kQ6_K, "neon", Run256<Q6_K, WideningDot>);
  SetMatrix(table, PackedType::kIQ4_XS, "neon", Run256<IQ4_XS, WideningDot>);
  SetMatrix(table, PackedType::kIQ2_XXS, "neon", Run256<IQ2_XXS, WideningDot>);
  SetMatrix(table, PackedType::kMXFP4, "neon", Run32<MXFP4, WideningDot>);
}

}  // namespace reprise::cpu::neon
