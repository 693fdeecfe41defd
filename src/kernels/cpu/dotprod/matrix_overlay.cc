// SPDX-License-Identifier: Apache-2.0
// Quantised products with sdot.
#include "kernels/cpu/dotprod/sdot-inl.h"
#include "kernels/cpu/neon/product256-inl.h"
#include "kernels/cpu/neon/product32-inl.h"

namespace reprise::cpu {
namespace {

// sdot: 16 multiply-adds each, in chains that do not wait for one another.
int64_t ByteMultiplyAdds(int64_t n) {
  constexpr int kChains = 16;
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
  int32x4_t sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = vdupq_n_s32(i);
  for (int64_t round = 0; round < n; ++round) {
    asm volatile("" : "+w"(a), "+w"(b));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = vdotq_s32(sum[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+w"(sum[i]));
  return n * kChains * 16;
}

}  // namespace

void OverlayDotprodMatrix(KernelTable* table) {
  table->byte_multiply_adds = ByteMultiplyAdds;
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
  SetMatrix(table, PackedType::kMXFP4, "dotprod", Run32<MXFP4, Sdot>);
}

}  // namespace reprise::cpu
