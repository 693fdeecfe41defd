// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/avx512/matrix_float.h"

namespace reprise::cpu {
namespace {

constexpr int kInfinityBits = 0x7F800000;
constexpr int kSmallestBits = 0x0D800000;  // 2^-100

inline __m512i MaxBits(__m512i max, const float* x) {
  const __m512i bits = _mm512_loadu_si512(x);
  return _mm512_max_epi32(max, _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF)));
}

// q of 16 values; returns them as 32-bit integers.
inline __m512i Round16(const float* x, __m512 inverse, int8_t* q) {
  const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(rounded));
  return rounded;
}

// scale and 127 / max of a block; 0 for both where the block has no q.
inline float Scale(int max_bits, float* inverse) {
  *inverse = 0;
  if (max_bits >= kInfinityBits) return __builtin_nanf("");
  if (max_bits < kSmallestBits) return 0;
  float max;
  __builtin_memcpy(&max, &max_bits, 4);
  *inverse = 127.0f / max;
  return max / 127.0f;
}

}  // namespace

void Quantise32Avx512(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 32) {
    const __m512i max = MaxBits(MaxBits(_mm512_setzero_si512(), x + i), x + i + 16);
    float inverse;
    const float block_scale = Scale(_mm512_reduce_max_epi32(max), &inverse);
    scale[i / 32] = block_scale;
    if (inverse == 0) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i), _mm256_setzero_si256());
      sum[i / 32] = 0;
      continue;
    }
    const __m512 inverses = _mm512_set1_ps(inverse);
    const __m512i low = Round16(x + i, inverses, q + i);
    const __m512i high = Round16(x + i + 16, inverses, q + i + 16);
    sum[i / 32] = static_cast<int16_t>(_mm512_reduce_add_epi32(_mm512_add_epi32(low, high)));
  }
}

void Quantise256Avx512(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 256) {
    __m512i max = _mm512_setzero_si512();
    for (int j = 0; j < 256; j += 16) max = MaxBits(max, x + i + j);
    float inverse;
    scale[i / 256] = Scale(_mm512_reduce_max_epi32(max), &inverse);
    if (inverse == 0) {
      for (int j = 0; j < 256; j += 64) _mm512_storeu_si512(q + i + j, _mm512_setzero_si512());
      for (int j = 0; j < 16; ++j) sum[i / 16 + j] = 0;
      continue;
    }
    const __m512 inverses = _mm512_set1_ps(inverse);
    for (int j = 0; j < 256; j += 16) {
      const __m512i rounded = Round16(x + i + j, inverses, q + i + j);
      sum[(i + j) / 16] = static_cast<int16_t>(_mm512_reduce_add_epi32(rounded));
    }
  }
}

}  // namespace reprise::cpu
