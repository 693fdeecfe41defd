// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/avx2/matrix_float.h"

namespace reprise::cpu {
namespace {

constexpr int kInfinityBits = 0x7F800000;
constexpr int kSmallestBits = 0x0D800000;  // 2^-100

inline __m256i MaxBits(__m256i max, const float* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm256_max_epi32(max, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
}

inline int Largest(__m256i a) {
  __m128i max = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4E));
  max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xB1));
  return _mm_cvtsi128_si32(max);
}

inline int Sum(__m256i a) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1));
  return _mm_cvtsi128_si32(sum);
}

// q of 16 values; returns the sum of both halves as 32-bit integers.
inline __m256i Round16(const float* x, __m256 inverse, int8_t* q) {
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
  return _mm256_add_epi32(low, high);
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

void Quantise32Avx2(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 32) {
    __m256i max = _mm256_setzero_si256();
    for (int j = 0; j < 32; j += 8) max = MaxBits(max, x + i + j);
    float inverse;
    scale[i / 32] = Scale(Largest(max), &inverse);
    if (inverse == 0) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i), _mm256_setzero_si256());
      sum[i / 32] = 0;
      continue;
    }
    const __m256 inverses = _mm256_set1_ps(inverse);
    const __m256i low = Round16(x + i, inverses, q + i);
    const __m256i high = Round16(x + i + 16, inverses, q + i + 16);
    sum[i / 32] = static_cast<int16_t>(Sum(_mm256_add_epi32(low, high)));
  }
}

void Quantise256Avx2(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum) {
  for (int64_t i = 0; i < cols; i += 256) {
    __m256i max = _mm256_setzero_si256();
    for (int j = 0; j < 256; j += 8) max = MaxBits(max, x + i + j);
    float inverse;
    scale[i / 256] = Scale(Largest(max), &inverse);
    const __m256 inverses = _mm256_set1_ps(inverse);
    for (int j = 0; j < 256; j += 16) {
      if (inverse == 0) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i + j), _mm_setzero_si128());
        sum[(i + j) / 16] = 0;
      } else {
        sum[(i + j) / 16] = static_cast<int16_t>(Sum(Round16(x + i + j, inverses, q + i + j)));
      }
    }
  }
}

}  // namespace reprise::cpu
