// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/integer-inl.h"
#include "kernels/cpu/avx2/matrix_float.h"
#include "kernels/cpu/generic/quantised-inl.h"
#include "kernels/cpu/table.h"

namespace reprise::cpu {
namespace {

// Products of bytes, their sums of two, of four: 32 multiply-adds each.
int64_t ByteMultiplyAdds(int64_t n) {
  constexpr int kChains = 8;
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
  __m256i sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_setzero_si256();
  for (int64_t round = 0; round < n; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(a));  // no two are alike
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+x"(sum[i]));
  return n * kChains * 32;
}

}  // namespace

void OverlayAvx2Matrix(KernelTable* table) {
  table->byte_multiply_adds = ByteMultiplyAdds;
  OverlayQuantised<IntegerAvx2>("avx2", table);
  OverlayAvx2FloatMatrices(table);
  table->quantise_32 = Quantise32Avx2;
  table->quantise_256 = Quantise256Avx2;
}

}  // namespace reprise::cpu
