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
#define REPRISE_SET32(name, ...) \
  SetMatrix(table, PackedType::k##name, "neon", Run32<name, WideningDot>);
#define REPRISE_SET256(name, ...) \
  SetMatrix(table, PackedType::k##name, "neon", Run256<name, WideningDot>);
  REPRISE_SMALL_TYPES(REPRISE_SET32)
  REPRISE_SUPER_TYPES(REPRISE_SET256)
  REPRISE_CODED_TYPES(REPRISE_SET256)
#undef REPRISE_SET32
#undef REPRISE_SET256
}

}  // namespace reprise::cpu::neon
