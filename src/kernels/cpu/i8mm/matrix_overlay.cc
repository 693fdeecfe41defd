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
#define REPRISE_SET32(name, ...) \
  SetMatrix(table, PackedType::k##name, "i8mm", MatrixRun32<name, Sdot>);
#define REPRISE_SET256(name, ...) \
  SetMatrix(table, PackedType::k##name, "i8mm", MatrixRun256<name, Sdot>);
  REPRISE_SMALL_TYPES(REPRISE_SET32)
  REPRISE_SUPER_TYPES(REPRISE_SET256)
  REPRISE_CODED_TYPES(REPRISE_SET256)
#undef REPRISE_SET32
#undef REPRISE_SET256
}

}  // namespace reprise::cpu
