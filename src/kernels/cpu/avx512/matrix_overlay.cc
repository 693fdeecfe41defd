// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/integer-inl.h"
#include "kernels/cpu/avx512/matrix_float.h"
#include "kernels/cpu/generic/quantised-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {
namespace {

// Products of bytes, their sums of two, of four: 64 multiply-adds each.
int64_t ByteMultiplyAdds(int64_t n) {
  constexpr int kChains = 8;
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), ones = _mm512_set1_epi16(1);
  __m512i sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_setzero_si512();
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+v"(a));  // no two are alike
      sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
    }
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sum[i]));
  return n * kChains * 64;
}

}  // namespace

void OverlayAvx512Matrix(KernelTable* table) {
  table->byte_multiply_adds = ByteMultiplyAdds;
  OverlayQuantised<IntegerAvx512>("avx512", table);
  OverlayAvx512FloatMatrices(table);
  table->quantise_32 = Quantise32Avx512;
  table->quantise_256 = Quantise256Avx512;
}

}  // namespace reprise::cpu
