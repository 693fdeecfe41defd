// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

// The vector vocabulary of kernels/cpu/generic (see its README): 16 floats in one register.
namespace reprise::cpu {
namespace {

struct V16 {
  __m512 v;
};
struct Mask16 {
  __mmask16 m;
};

// Register tile of attention: kTileQueries x kTileVectors accumulators.
constexpr int kTileQueries = 6;
constexpr int kTileVectors = 4;
// Vectors of columns that the gated delta rule takes at a time.
constexpr int kDeltaVectors = 4;
// The same for one token, whose state is read twice and kept once.
constexpr int kDeltaTokenVectors = 8;
// Tile of a scan that several tokens pass at once.
constexpr int kScanVectors = 2;
constexpr int kScanTokens = 4;
// Vectors that multiply-adds need at a time to hide their latency.
constexpr int kPeakVectors = 16;

inline __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

inline V16 Zero() { return {_mm512_setzero_ps()}; }
inline V16 Set(float x) { return {_mm512_set1_ps(x)}; }
inline V16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V16 LoadPartial(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
inline void Store(float* p, V16 x) { _mm512_storeu_ps(p, x.v); }
inline void StorePartial(float* p, V16 x, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), x.v); }

// f16
inline V16 Load(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline V16 LoadPartial(const uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p))};
}
inline void Store(uint16_t* p, V16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void StorePartial(uint16_t* p, V16 x, int n) {
  _mm256_mask_storeu_epi16(p, FirstLanes(n),
                           _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// Rounded to f16 and back.
inline V16 RoundF16(V16 x) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline V16 LoadPartial(const int8_t* p, int n) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(FirstLanes(n), p)))};
}
inline V16 Load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline V16 LoadBF16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline V16 LoadPartialBF16(const uint16_t* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(FirstLanes(n), p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}

inline V16 Add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 Sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 Mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 Div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V16 Sqrt(V16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline V16 Fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 Neg(V16 a) {
  return {_mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
inline V16 Abs(V16 a) { return {_mm512_abs_ps(a.v)}; }
// `magnitude` >= 0 (or NaN) with the sign of `sign` set.
inline V16 OrSign(V16 magnitude, V16 sign) {
  const __m512i bit = _mm512_and_si512(_mm512_castps_si512(sign.v), _mm512_set1_epi32(INT32_MIN));
  return {_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude.v), bit))};
}
inline V16 Min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }  // a < b ? a : b
inline V16 Max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }  // a > b ? a : b
// The bits of each lane shifted left by 23, as a float.
inline V16 ShiftToExponent(V16 a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}

inline Mask16 Less(V16 a, V16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
// Lanes [begin, end). REQUIRES: 0 <= begin, end <= 16.
inline Mask16 Lanes(int begin, int end) {
  return {static_cast<__mmask16>(FirstLanes(end) & ~FirstLanes(begin))};
}
inline V16 Select(Mask16 mask, V16 yes, V16 no) {
  return {_mm512_mask_blend_ps(mask.m, no.v, yes.v)};
}

inline float MaxLanes(V16 a) { return _mm512_reduce_max_ps(a.v); }
// l[i] += l[i+8]; l[i] += l[i+4]; l[i] += l[i+2]; l[0] += l[1].
inline float SumLanes(V16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// rows[i] lane j becomes rows[j] lane i.
inline void Transpose(V16 (&rows)[16]) {
  __m512 a[16];
  __m512 b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // pairs of lanes
    a[2 * i] = _mm512_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v);
    a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // fours: b[4 * i + c] holds lane c of rows 4 * i.. in each quarter
    const __m512d lo0 = _mm512_castps_pd(a[4 * i]);
    const __m512d hi0 = _mm512_castps_pd(a[4 * i + 1]);
    const __m512d lo1 = _mm512_castps_pd(a[4 * i + 2]);
    const __m512d hi1 = _mm512_castps_pd(a[4 * i + 3]);
    b[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo0, lo1));
    b[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo0, lo1));
    b[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(hi0, hi1));
    b[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(hi0, hi1));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {  // quarters to their rows
    const __m512 even01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const __m512 odd01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xDD);
    const __m512 even23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const __m512 odd23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xDD);
    rows[c].v = _mm512_shuffle_f32x4(even01, even23, 0x88);
    rows[8 + c].v = _mm512_shuffle_f32x4(even01, even23, 0xDD);
    rows[4 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    rows[12 + c].v = _mm512_shuffle_f32x4(odd01, odd23, 0xDD);
  }
}

}  // namespace
}  // namespace reprise::cpu
