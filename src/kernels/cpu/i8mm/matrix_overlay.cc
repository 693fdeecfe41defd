// SPDX-License-Identifier: Apache-2.0
// Quantised products with smmla; a single token goes through sdot, which gives the same bits.
#include "kernels/cpu/dotprod/sdot-inl.h"
#include "kernels/cpu/i8mm/tile256-inl.h"
#include "kernels/cpu/i8mm/tile32-inl.h"

namespace reprise::cpu {
namespace {

// smmla: 32 multiply-adds each, in chains that do not wait for one another.
int64_t ByteMultiplyAdds(int64_t n) {
  constexpr int kChains = 16;
  int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(5);
  int32x4_t sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = vdupq_n_s32(i);
  for (int64_t round = 0; round < n; ++round) {
    asm volatile("" : "+w"(a), "+w"(b));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = vmmlaq_s32(sum[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+w"(sum[i]));
  return n * kChains * 32;
}

}  // namespace

void OverlayI8mmMatrix(KernelTable* table) {
  table->byte_multiply_adds = ByteMultiplyAdds;
  using neon::PackedType;
  using neon::SetMatrix;
  SetMatrix(table, PackedType::kQ8_0, "i8mm", MatrixRun32<Q8_0, Sdot>);
  SetMatrix(table, PackedType::kQ4_0, "i8mm", MatrixRun32<Q4_0, Sdot>);
  SetMatrix(table, PackedType::kQ4_1, "i8mm", MatrixRun32<Q4_1, Sdot>);
  SetMatrix(table, PackedType::kQ5_0, "i8mm", MatrixRun32<Q5_0, Sdot>);
  SetMatrix(table, PackedType::kQ5_1, "i8mm", MatrixRun32<Q5_1, Sdot>);
  SetMatrix(table, PackedType::kIQ4_NL, "i8mm", MatrixRun32<IQ4_NL, Sdot>);
  SetMatrix(table, PackedType::kQ2_K, "i8mm", MatrixRun256<Q2_K, Sdot>);
  SetMatrix(table, PackedType::kQ3_K, "i8mm", MatrixRun256<Q3_K, Sdot>);
  SetMatrix(table, PackedType::kQ4_K, "i8mm", MatrixRun256<Q4_K, Sdot>);
  SetMatrix(table, PackedType::kQ5_K, "i8mm", MatrixRun256<Q5_K, Sdot>);
  SetMatrix(table, PackedType::kQ6_K, "i8mm", MatrixRun256<Q6_K, Sdot>);
  SetMatrix(table, PackedType::kIQ4_XS, "i8mm", MatrixRun256<IQ4_XS, Sdot>);
  SetMatrix(table, PackedType::kIQ2_XXS, "i8mm", MatrixRun256<IQ2_XXS, Sdot>);
  SetMatrix(table, PackedType::kMXFP4, "i8mm", MatrixRun32<MXFP4, Sdot>);
}

}  // namespace reprise::cpu
