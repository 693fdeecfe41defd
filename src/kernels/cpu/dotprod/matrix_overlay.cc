// SPDX-License-Identifier: Apache-2.0
// Quantised products with sdot.
#include "kernels/cpu/neon/product256-inl.h"
#include "kernels/cpu/neon/product32-inl.h"

namespace reprise::cpu {
namespace {

struct Sdot {
  static constexpr int kTokens = 4;
  int32x4_t pair_sum[4];  // | even row, values 0..3 | 4..7 | odd row, 0..3 | 4..7 |

  inline void Start(int32_t bias) {
    const int32x4_t start = vreinterpretq_s32_s64(vdupq_n_s64(uint32_t(bias)));
#pragma GCC unroll 4
    for (int32x4_t& sum : pair_sum) sum = start;
  }
  inline void Add(int pair, int8x16_t w0, int8x16_t w1, int8x16_t x0, int8x16_t x1) {
    pair_sum[pair] = vdotq_s32(vdotq_s32(pair_sum[pair], w0, x0), w1, x1);
  }
  inline int32x4x2_t Sum() const {
    return {{vpaddq_s32(pair_sum[0], pair_sum[1]), vpaddq_s32(pair_sum[2], pair_sum[3])}};
  }
};

}  // namespace

void OverlayDotprodMatrix(KernelTable* table) {
  using neon::PackedType;
  using neon::SetMatrix;
  SetMatrix(table, PackedType::kQ8_0, "dotprod", Run32<Q8_0, Sdot>);
  SetMatrix(table, PackedType::kQ4_0, "dotprod", Run32<Q4_0, Sdot>);
  SetMatrix(table, PackedType::kQ4_1, "dotprod", Run32<Q4_1, Sdot>);
  SetMatrix(table, PackedType::kQ5_0, "dotprod", Run32<Q5_0, Sdot>);
  SetMatrix(table, PackedType::kQ5_1, "dotprod", Run32<Q5_1, Sdot>);
  SetMatrix(table, PackedType::kIQ4_NL, "dotprod", Run32<IQ4_NL, Sdot>);
  SetMatrix(table, PackedType::kQ2_K, "dotprod", Run256<Q2_K, Sdot>);
  SetMatrix(table, PackedType::kQ3_K, "dotprod", Run256<Q3_K, Sdot>);
  SetMatrix(table, PackedType::kQ4_K, "dotprod", Run256<Q4_K, Sdot>);
  SetMatrix(table, PackedType::kQ5_K, "dotprod", Run256<Q5_K, Sdot>);
  SetMatrix(table, PackedType::kQ6_K, "dotprod", Run256<Q6_K, Sdot>);
  SetMatrix(table, PackedType::kIQ4_XS, "dotprod", Run256<IQ4_XS, Sdot>);
  SetMatrix(table, PackedType::kIQ2_XXS, "dotprod", Run256<IQ2_XXS, Sdot>);
}

}  // namespace reprise::cpu
