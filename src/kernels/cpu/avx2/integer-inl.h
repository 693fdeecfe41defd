// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

// The integer vector of kernels/cpu/generic/matrix-inl.h: 8 rows of 4 bytes.
namespace reprise::cpu {
namespace {

struct IntegerAvx2 {
  using Int = __m256i;
  using Float = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTokens32 = 4;  // in a tile, by block size
  static constexpr int kTokens256 = 3;
  static constexpr int kSignedBias = 0;
  static constexpr bool kPairSums = true;
  // Of rows in a tile: a single token takes whole lines of the group.
  static constexpr int VectorsFor(int tokens) { return tokens == 1 ? 4 : tokens == 2 ? 2 : 1; }

  static Int Load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Int Set(int32_t x) { return _mm256_set1_epi32(x); }
  // 4 bytes in every lane.
  static Int Broadcast(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
  }
  static Int WidenUnsigned(const uint8_t* p) { return _mm256_cvtepu8_epi32(Load8(p)); }
  static Int WidenSigned(const uint8_t* p) { return _mm256_cvtepi8_epi32(Load8(p)); }
  static Int WidenUnsigned16(const uint8_t* p) { return _mm256_cvtepu16_epi32(Load16(p)); }

  // Of kLanes bytes each in all four of its lane.
  static Int Repeat(const uint8_t* p) {
    int64_t bytes;
    __builtin_memcpy(&bytes, p, 8);
    const Int order = _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404,
                                        0x05050505, 0x06060606, 0x07070707);
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(bytes), order);
  }
  static Int And(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  template <int kBits>
  static Int ShiftRight(Int a) {
    return _mm256_srli_epi32(a, kBits);
  }
  template <int kBits>
  static Int ShiftLeft(Int a) {
    return _mm256_slli_epi32(a, kBits);
  }
  static Int ShiftRight(Int a, int bits) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int Multiply(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static Int Lookup(const int8_t* table, Int index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load16(table)), index);
  }

  // Sums of two products of unsigned w and signed a in every half of a lane, and of such sums.
  static Int PairProducts(Int w, Int a) { return _mm256_maddubs_epi16(w, a); }
  static Int AddHalves(Int a, Int b) { return _mm256_add_epi16(a, b); }
  // acc + sum of the four products of a lane, exact: w unsigned and at most 128, a signed
  // and at least -127: two products fit 16 bits.
  static Int Dot(Int acc, Int w, Int a) {
    return DotPairs(acc, _mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
  }
  // The same for signed w, -128 included; a is at least -127. |w| * a stays within 16 bits.
  static Int DotSigned(Int acc, Int w, Int a) {
    return Dot(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  }
  static Int DotPairs(Int acc, Int a, Int b) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
  }

  static Float Zero() { return _mm256_setzero_ps(); }
  static Float SetFloat(float x) { return _mm256_set1_ps(x); }
  static Float LoadHalves(const uint8_t* p) { return _mm256_cvtph_ps(Load16(p)); }
  static Float ToFloat(Int a) { return _mm256_cvtepi32_ps(a); }
  static Float AsFloat(Int bits) { return _mm256_castsi256_ps(bits); }
  static Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float Fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float FmaNegated(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
  // The first `count` floats, zeros behind.
  static Float LoadRows(const float* y, int count) {
    if (count >= kLanes) return _mm256_loadu_ps(y);
    return count > 0 ? _mm256_maskload_ps(y, Mask(count)) : Zero();
  }
  static void Store(uint8_t* p, Int a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
  static void Store(float* y, Float a, int count) {
    if (count >= kLanes) {
      _mm256_storeu_ps(y, a);
    } else if (count > 0) {
      _mm256_maskstore_ps(y, Mask(count), a);
    }
  }

 private:
  static Int Mask(int count) {
    return _mm256_cmpgt_epi32(Set(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i Load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static __m128i Load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
};

}  // namespace
}  // namespace reprise::cpu
