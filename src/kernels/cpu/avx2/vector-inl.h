// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

// The vector vocabulary of kernels/cpu/generic (see its README): 16 floats in two registers.
namespace reprise::cpu {
namespace {

struct V16 {
  __m256 a;  // lanes 0..7
  __m256 b;  // lanes 8..15
};
struct Mask16 {
  __m256 a;
  __m256 b;
};

// Register tile of attention: kTileQueries x kTileVectors accumulators.
constexpr int kTileQueries = 6;
constexpr int kTileVectors = 1;
// Vectors of columns that the gated delta rule takes at a time.
constexpr int kDeltaVectors = 1;
// The same for one token, whose state is read twice and kept once.
constexpr int kDeltaTokenVectors = 4;
// Tile of a scan that several tokens pass at once.
constexpr int kScanVectors = 1;
constexpr int kScanTokens = 2;
// Vectors that multiply-adds need at a time to hide their latency.
constexpr int kPeakVectors = 4;

// All bits of lane i set where i < n - offset.
inline __m256i FirstLanes(int n, int offset) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - offset), lane);
}

inline V16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline V16 LoadPartial(const float* p, int n) {
  return {_mm256_maskload_ps(p, FirstLanes(n, 0)), _mm256_maskload_ps(p + 8, FirstLanes(n, 8))};
}
inline void Store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline void StorePartial(float* p, V16 x, int n) {
  _mm256_maskstore_ps(p, FirstLanes(n, 0), x.a);
  _mm256_maskstore_ps(p + 8, FirstLanes(n, 8), x.b);
}

// f16
inline V16 Load(const uint16_t* p) {
  const __m128i* bits = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(bits)), _mm256_cvtph_ps(_mm_loadu_si128(bits + 1))};
}
inline V16 LoadPartial(const uint16_t* p, int n) {
  uint16_t whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return Load(whole);
}
inline void Store(uint16_t* p, V16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  __m128i* bits = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(bits, _mm256_cvtps_ph(x.a, kNearest));
  _mm_storeu_si128(bits + 1, _mm256_cvtps_ph(x.b, kNearest));
}
inline void StorePartial(uint16_t* p, V16 x, int n) {
  uint16_t whole[16];
  Store(whole, x);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}
// Rounded to f16 and back.
inline V16 RoundF16(V16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, kNearest)),
          _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, kNearest))};
}
inline V16 Load(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline V16 LoadPartial(const int8_t* p, int n) {
  int8_t whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return Load(whole);
}
inline __m256 WidenBF16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline V16 LoadBF16(const uint16_t* p) {
  const __m128i* bits = reinterpret_cast<const __m128i*>(p);
  return {WidenBF16(_mm_loadu_si128(bits)), WidenBF16(_mm_loadu_si128(bits + 1))};
}
inline V16 LoadPartialBF16(const uint16_t* p, int n) {
  uint16_t whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return LoadBF16(whole);
}

inline V16 Add(V16 x, V16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V16 Sub(V16 x, V16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V16 Mul(V16 x, V16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V16 Div(V16 x, V16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V16 Sqrt(V16 x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline V16 Fma(V16 x, V16 y, V16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline V16 Neg(V16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
inline V16 Abs(V16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
// `magnitude` >= 0 (or NaN) with the sign of `sign` set.
inline V16 OrSign(V16 magnitude, V16 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(magnitude.a, _mm256_and_ps(bit, sign.a)),
          _mm256_or_ps(magnitude.b, _mm256_and_ps(bit, sign.b))};
}
// a < b ? a : b
inline V16 Min(V16 x, V16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
// a > b ? a : b
inline V16 Max(V16 x, V16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
// The bits of each lane shifted left by 23, as a float.
inline V16 ShiftToExponent(V16 x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.a), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.b), 23))};
}

inline Mask16 Less(V16 x, V16 y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
// Lanes [begin, end). REQUIRES: 0 <= begin, end <= 16.
inline Mask16 Lanes(int begin, int end) {
  return {_mm256_castsi256_ps(_mm256_andnot_si256(FirstLanes(begin, 0), FirstLanes(end, 0))),
          _mm256_castsi256_ps(_mm256_andnot_si256(FirstLanes(begin, 8), FirstLanes(end, 8)))};
}
inline V16 Select(Mask16 mask, V16 yes, V16 no) {
  return {_mm256_blendv_ps(no.a, yes.a, mask.a), _mm256_blendv_ps(no.b, yes.b, mask.b)};
}

inline float MaxLanes(V16 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
// l[i] += l[i+8]; l[i] += l[i+4]; l[i] += l[i+2]; l[0] += l[1].
inline float SumLanes(V16 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline void Transpose8(__m256 (&r)[8]) {
  __m256 a[8];
  __m256 b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
    b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xEE);
    b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
    b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}
// rows[i] lane j becomes rows[j] lane i.
inline void Transpose(V16 (&rows)[16]) {
  __m256 quarter[2][2][8];  // [row half][lane half]
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    quarter[0][0][i] = rows[i].a;
    quarter[0][1][i] = rows[i].b;
    quarter[1][0][i] = rows[i + 8].a;
    quarter[1][1][i] = rows[i + 8].b;
  }
  Transpose8(quarter[0][0]);
  Transpose8(quarter[0][1]);
  Transpose8(quarter[1][0]);
  Transpose8(quarter[1][1]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = {quarter[0][0][i], quarter[1][0][i]};
    rows[i + 8] = {quarter[0][1][i], quarter[1][1][i]};
  }
}

}  // namespace
}  // namespace reprise::cpu
