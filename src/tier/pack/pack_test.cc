// SPDX-License-Identifier: Apache-2.0
// Proves that what was packed comes back bit for bit, that numbers get shorter and noise is left as
// it is, and that bytes which nobody packed are refused.
#include "tier/pack/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"

namespace reprise {
namespace {

std::vector<std::byte> Numbers(size_t count) {
  Rng rng(1);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    double sum = -6;  // about Gaussian
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(rng.Below(1 << 20)) / (1 << 20);
    number = static_cast<float>(sum);
  }
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> Noise(size_t count, uint64_t seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(RandomAt(seed, i));
  return bytes;
}

TEST(Pack, NumbersGetShorterAndComeBack) {
  for (const size_t count : {1000u, 4099u, 100'000u}) {
    auto data = Numbers(count);
    data.resize(data.size() - count % 3);  // some bytes left over
    for (const size_t width : {size_t{2}, size_t{4}}) {
      const auto packed = Pack(data, width);
      if (packed.empty()) continue;
      EXPECT_LT(packed.size(), data.size());
      std::vector<std::byte> out(data.size());
      ASSERT_TRUE(Unpack(packed, width, out).ok());
      EXPECT_EQ(out, data);
    }
  }
  EXPECT_LT(Pack(Numbers(100'000), 4).size(), 380'000u);
  const auto all = Numbers(16'000);  // as many as are tried
  const size_t width = PackWidth(all);
  EXPECT_LE(Pack(all, width).size(), Pack(all, 6 - width).size()) << "the better one";
}

TEST(Pack, NoiseIsLeftAsItIs) {
  EXPECT_TRUE(Pack(Noise(100'000, 1), 2).empty());
  EXPECT_TRUE(Pack({}, 2).empty());
}

TEST(Pack, WhatNobodyPackedIsRefused) {
  const auto data = Numbers(2000);
  const auto packed = Pack(data, 4);
  ASSERT_FALSE(packed.empty());
  std::vector<std::byte> out(data.size());
  EXPECT_FALSE(Unpack(packed, 3, out).ok());
  EXPECT_FALSE(Unpack(std::span(packed).first(packed.size() / 2), 4, out).ok());
  EXPECT_FALSE(Unpack(packed, 4, std::span(out).first(out.size() - 4)).ok());
  out.resize(out.size() + 4);
  EXPECT_FALSE(Unpack(packed, 4, out).ok());
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    EXPECT_FALSE(Unpack(Noise(seed % 300, seed), 2, out).ok());
  }
}

}  // namespace
}  // namespace reprise
