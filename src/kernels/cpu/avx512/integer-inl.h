// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

// The integer vector of kernels/cpu/generic/matrix-inl.h: 16 rows of 4 bytes.
namespace reprise::cpu {
namespace {

struct IntegerAvx512 {
  using Int = __m512i;
  using Float = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTokens32 = 4;  // in a tile, by block size
  static constexpr int kTokens256 = 3;
  static constexpr int kSignedBias = 0;
  static constexpr bool kPairSums = true;
  // Of rows in a tile.
  static constexpr int VectorsFor(int) { return 2; }

  static Int Load(const void* p) { return _mm512_loadu_si512(p); }
  static Int Set(int32_t x) { return _mm512_set1_epi32(x); }
  // 4 bytes in every lane.
  static Int Broadcast(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
  }
  static Int WidenUnsigned(const uint8_t* p) { return _mm512_cvtepu8_epi32(Load16(p)); }
  static Int WidenSigned(const uint8_t* p) { return _mm512_cvtepi8_epi32(Load16(p)); }
  static Int WidenUnsigned16(const uint8_t* p) { return _mm512_cvtepu16_epi32(Load32(p)); }

  // Of kLanes bytes each in all four of its lane.
  static Int Repeat(const uint8_t* p) {
    const Int order =
        _mm512_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606,
                          0x07070707, 0x08080808, 0x09090909, 0x0A0A0A0A, 0x0B0B0B0B, 0x0C0C0C0C,
                          0x0D0D0D0D, 0x0E0E0E0E, 0x0F0F0F0F);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Load16(p)), order);
  }
  static Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  template <int kBits>
  static Int ShiftRight(Int a) {
    return _mm512_srli_epi32(a, kBits);
  }
  template <int kBits>
  static Int ShiftLeft(Int a) {
    return _mm512_slli_epi32(a, kBits);
  }
  static Int ShiftRight(Int a, int bits) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  static Int Add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int Multiply(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Int Lookup(const int8_t* table, Int index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(Load16(table)), index);
  }

  // Sums of two products of unsigned w and signed a in every half of a lane, and of such sums.
  static Int PairProducts(Int w, Int a) { return _mm512_maddubs_epi16(w, a); }
  static Int AddHalves(Int a, Int b) { return _mm512_add_epi16(a, b); }
  // acc + sum of the four products of a lane, exact: w unsigned and at most 128, a signed
  // and at least -127: two products fit 16 bits.
  static Int Dot(Int acc, Int w, Int a) {
    return DotPairs(acc, _mm512_maddubs_epi16(w, a), _mm512_set1_epi16(1));
  }
  // The same for signed w, -128 included; a is at least -127.
  static Int DotSigned(Int acc, Int w, Int a) {
    const __mmask64 negative = _mm512_movepi8_mask(w);
    const Int signed_a = _mm512_mask_sub_epi8(a, negative, _mm512_setzero_si512(), a);
    return Dot(acc, _mm512_abs_epi8(w), signed_a);
  }
  static Int DotPairs(Int acc, Int a, Int b) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
  }

  static Float Zero() { return _mm512_setzero_ps(); }
  static Float SetFloat(float x) { return _mm512_set1_ps(x); }
  static Float LoadHalves(const uint8_t* p) { return _mm512_cvtph_ps(Load32(p)); }
  static Float ToFloat(Int a) { return _mm512_cvtepi32_ps(a); }
  static Float AsFloat(Int bits) { return _mm512_castsi512_ps(bits); }
  static Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float Fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float FmaNegated(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
  // The first `count` floats, zeros behind.
  static Float LoadRows(const float* y, int count) {
    if (count >= kLanes) return _mm512_loadu_ps(y);
    return count > 0 ? _mm512_maskz_loadu_ps(Mask(count), y) : Zero();
  }
  static void Store(uint8_t* p, Int a) { _mm512_storeu_si512(p, a); }
  static void Store(float* y, Float a, int count) {
    if (count >= kLanes) {
      _mm512_storeu_ps(y, a);
    } else if (count > 0) {
      _mm512_mask_storeu_ps(y, Mask(count), a);
    }
  }

 private:
  static __mmask16 Mask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static __m128i Load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m256i Load32(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
};

}  // namespace
}  // namespace reprise::cpu
