// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx512/matrix_float.h"

#include <immintrin.h>

#include "kernels/cpu/generic/matrix_float-inl.h"

namespace reprise::cpu {
namespace {

struct FloatAvx512 {
  using Vector = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 4, kTokens = 6;

  static Vector Zero() { return _mm512_setzero_ps(); }
  static Vector Load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector LoadPartial(const float* p, int count) {
    return _mm512_maskz_loadu_ps(First(count), p);
  }
  static Vector Fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector FmaPartial(Vector a, Vector b, Vector c, int count) {
    return _mm512_mask3_fmadd_ps(a, b, c, First(count));
  }
  static float Sum(const Vector (&parts)[1]) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(parts[0]), _mm512_extractf32x8_ps(parts[0], 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

 private:
  static __mmask16 First(int count) { return static_cast<__mmask16>((1u << count) - 1); }
};

struct LoadF32 {
  static constexpr int kBytes = 4;
  static __m512 Load(const uint8_t* p) { return _mm512_loadu_ps(p); }
};
struct LoadF16 {
  static constexpr int kBytes = 2;
  static __m512 Load(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};
struct LoadBF16 {
  static constexpr int kBytes = 2;
  static __m512 Load(const uint8_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

}  // namespace

void OverlayAvx512FloatMatrices(KernelTable* table) {
  SetFloats<FloatAvx512, LoadF32>("avx512", DType::kF32, table);
  SetFloats<FloatAvx512, LoadF16>("avx512", DType::kF16, table);
  SetFloats<FloatAvx512, LoadBF16>("avx512", DType::kBF16, table);
}

}  // namespace reprise::cpu
