// SPDX-License-Identifier: Apache-2.0
// Quantised weights in f16, as products on tensor cores take them.
#include "kernels/reference/gpu/quantised_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/quantised/random_blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"

namespace reprise::reference {
namespace {

constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                            DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<float> RandomValues(Rng& rng, size_t count, float size) {
  std::vector<float> values(count);
  for (float& value : values) value = (rng.Uniform() - 0.5f) * size;
  return values;
}

// The nearest f16, of two as near the even one, looked for among all.
uint16_t Nearest(double exact) {
  uint16_t best = 0;
  double least = 1e300;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double distance = std::fabs(double(F16ToF32(uint16_t(bits))) - std::fabs(exact));
    if (distance < least || (distance == least && bits % 2 == 0)) {
      least = distance;
      best = uint16_t(bits);
    }
  }
  return std::signbit(exact) ? uint16_t(best | 0x8000) : best;
}

TEST(QuantisedWeightsTest, AreRoundedOnce) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const uint16_t scale = F32ToF16((rng.Uniform() - 0.5f) * std::ldexp(1.0f, -int(rng.Below(24))));
    const uint16_t shift = F32ToF16((rng.Uniform() - 0.5f) * std::ldexp(1.0f, -int(rng.Below(24))));
    const int q = int(rng.Below(256)) - 128;
    const double exact = double(F16ToF32(scale)) * q + double(F16ToF32(shift));
    EXPECT_EQ(HalfWeight(q, scale, shift), Nearest(exact)) << scale << " " << q << " " << shift;
  }
  // Half way between two f16, and a little more than that: in f32 both are the same.
  EXPECT_EQ(HalfWeight(1, F32ToF16(2049.0f / 2), 0), F32ToF16(1024.5f));
  EXPECT_EQ(HalfWeight(2, 0x6801, 0x0001), 0x6C01);            // 2 * 2050 + 2^-24
  EXPECT_EQ(HalfWeight(1, 0x6800, F32ToF16(1.0f)), 0x6800);    // 2049: to even
  EXPECT_EQ(HalfWeight(3, F32ToF16(683.0f), 0x0001), 0x6801);  // 2049 + 2^-24: up
}

TEST(QuantisedWeightsTest, AreThoseOfTheFile) {
  for (const DType type : kTypes) {
    constexpr int64_t kCols = 1024;
    Rng rng(2);
    const std::vector<float> values = RandomValues(rng, kCols, 0.1f);
    std::vector<std::byte> blocks(RowBytes(type, kCols));
    QuantiseRow(type, values.data(), blocks.data(), kCols);
    std::vector<float> expected(kCols);
    DequantiseRow(type, blocks.data(), expected.data(), kCols);
    std::vector<uint16_t> weights(kCols);
    HalfWeights(type, blocks.data(), weights);
    for (size_t i = 0; i < kCols; ++i) {
      // Where a file has scale and shift in f16, one rounding is all; else three of 2^-11 each.
      const bool exact = type == DType::kQ8_0 || type == DType::kQ4_0 || type == DType::kQ5_0;
      if (exact) {
        EXPECT_EQ(F16ToF32(weights[i]), F16ToF32(F32ToF16(expected[i]))) << NameOf(type);
      } else {
        EXPECT_NEAR(F16ToF32(weights[i]), expected[i], 0.1f * 0x1p-10f) << NameOf(type);
      }
    }
  }
}

// Files of these come with importance data, so blocks are any that there can be.
TEST(QuantisedWeightsTest, GridsAndTernaryOnesAreThoseOfTheFile) {
  for (const DType type : {DType::kIQ1_S, DType::kIQ1_M, DType::kIQ3_XXS, DType::kIQ3_S,
                           DType::kTQ1_0, DType::kTQ2_0}) {
    constexpr int64_t kCols = 4096;
    Rng rng(3);
    const std::vector<std::byte> blocks = cuda::RandomBlocks(rng, type, 1, kCols);
    std::vector<float> expected(kCols);
    DequantiseRow(type, blocks.data(), expected.data(), kCols);
    std::vector<uint16_t> weights(kCols);
    HalfWeights(type, blocks.data(), weights);
    for (size_t i = 0; i < kCols; ++i) {
      EXPECT_NEAR(F16ToF32(weights[i]), expected[i], std::fabs(expected[i]) * 0x1p-10f + 0x1p-19f)
          << NameOf(type) << " " << i;
    }
  }
}

TEST(QuantisedWeightsTest, OtherTypesHaveIntegers) {
  for (const DType type : {DType::kF16, DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS,
                           DType::kIQ2_XXS}) {
    EXPECT_FALSE(HasHalfWeights(type)) << NameOf(type);
  }
}

}  // namespace
}  // namespace reprise::reference
