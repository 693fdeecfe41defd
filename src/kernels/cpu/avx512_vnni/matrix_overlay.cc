// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512_vnni/integer-inl.h"
#include "kernels/cpu/generic/quantised-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {
namespace {

// vpdpbusd: 64 multiply-adds each, in chains that do not wait for one another.
int64_t ByteMultiplyAdds(int64_t n) {
  constexpr int kChains = 16;
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  __m512i sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_setzero_si512();
  for (int64_t round = 0; round < n; ++round) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sum[i]));
  return n * kChains * 64;
}

}  // namespace

void OverlayAvx512VnniMatrix(KernelTable* table) {
  table->byte_multiply_adds = ByteMultiplyAdds;
  OverlayQuantised<IntegerVnni>("avx512_vnni", table);
}

}  // namespace reprise::cpu
