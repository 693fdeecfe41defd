// SPDX-License-Identifier: Apache-2.0
// Proves the 16-bit conversions against the definition: every pattern survives the round trip, and
// every midpoint between neighbours rounds to even.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace reprise {
namespace {

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      ASSERT_EQ(F32ToF16(value), bits);
    }
  }
  EXPECT_EQ(F16ToF32(0x3C00), 1.0f);
  EXPECT_EQ(F16ToF32(0x0001), 0x1p-24f);
  EXPECT_EQ(F16ToF32(0xFBFF), -65504.0f);
}

TEST(Half, MidpointsRoundToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = F16ToF32(static_cast<uint16_t>(bits));
    const float high = F16ToF32(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(F32ToF16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(F32ToF16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(F32ToF16(-middle), (bits % 2 == 0 ? bits : bits + 1) | 0x8000);
  }
  EXPECT_EQ(F32ToF16(65519.99f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(1e30f), 0x7C00);
}

TEST(Half, BF16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = BF16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(value))));
    } else {
      ASSERT_EQ(F32ToBF16(value), bits);
    }
  }
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(F32ToBF16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
}

}  // namespace
}  // namespace reprise
