// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2/matrix_float.h"

#include <immintrin.h>

#include "kernels/cpu/generic/matrix_float-inl.h"

namespace reprise::cpu {
namespace {

struct FloatAvx2 {
  using Vector = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 2, kTokens = 3;

  static Vector Zero() { return _mm256_setzero_ps(); }
  static Vector Load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector LoadPartial(const float* p, int count) {
    return _mm256_maskload_ps(p, First(count));
  }
  static Vector Fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector FmaPartial(Vector a, Vector b, Vector c, int count) {
    return _mm256_blendv_ps(c, _mm256_fmadd_ps(a, b, c), _mm256_castsi256_ps(First(count)));
  }
  static float Sum(const Vector (&parts)[2]) {
    const __m256 eight = _mm256_add_ps(parts[0], parts[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  static __m256i First(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct LoadF32 {
  static constexpr int kBytes = 4;
  static __m256 Load(const uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
};
struct LoadF16 {
  static constexpr int kBytes = 2;
  static __m256 Load(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct LoadBF16 {
  static constexpr int kBytes = 2;
  static __m256 Load(const uint8_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
};

}  // namespace

void OverlayAvx2FloatMatrices(KernelTable* table) {
  SetFloats<FloatAvx2, LoadF32>("avx2", DType::kF32, table);
  SetFloats<FloatAvx2, LoadF16>("avx2", DType::kF16, table);
  SetFloats<FloatAvx2, LoadBF16>("avx2", DType::kBF16, table);
}

}  // namespace reprise::cpu
