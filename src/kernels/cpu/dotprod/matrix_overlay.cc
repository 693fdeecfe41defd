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
#define REPRISE_SET32(name, ...) \
  SetMatrix(table, PackedType::k##name, "dotprod", Run32<name, Sdot>);
#define REPRISE_SET256(name, ...) \
  SetMatrix(table, PackedType::k##name, "dotprod", Run256<name, Sdot>);
  REPRISE_SMALL_TYPES(REPRISE_SET32)
  REPRISE_SUPER_TYPES(REPRISE_SET256)
  REPRISE_CODED_TYPES(REPRISE_SET256)
#undef REPRISE_SET32
#undef REPRISE_SET256
}

}  // namespace reprise::cpu
