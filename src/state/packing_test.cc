// SPDX-License-Identifier: Apache-2.0
#include "state/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/rng.h"
#include "tensor/half.h"

namespace reprise {
namespace {

// Recurrent tensors of odd sizes, among them one that is not made of numbers to be rounded.
StateSpec SpecWithAll() {
  StateSpec spec;
  spec.layers.push_back({0, StateKind::kFullKv, 0, {{"k", {4}, DType::kF32}}});
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"conv", {3, 7}, DType::kF32}}});
  spec.layers.push_back(
      {2, StateKind::kRecurrent, 0, {{"last", {5}, DType::kBF16}, {"delta", {1000}, DType::kF32}}});
  return spec;
}

struct State {
  explicit State(size_t size) : bytes(size) {
    auto made = HostMemory().Allocate(size);
    buffer = std::move(*made);
  }
  std::vector<std::byte> Get() const {
    std::vector<std::byte> all(bytes);
    HostMemory().Download(all.data(), buffer.data(), bytes);
    return all;
  }
  DeviceBuffer buffer;
  size_t bytes;
};

class PackingTest : public testing::Test {
 protected:
  PackingTest() : spec_(SpecWithAll()), layout_(spec_), state_(layout_.state_bytes()) {
    std::vector<std::byte> all(state_.bytes);
    Rng rng(1);
    for (size_t i = 0; i < all.size(); i += 4) {
      const float number = static_cast<float>(rng.Below(2'000'001)) * 1e-6f - 1;
      std::memcpy(&all[i], &number, std::min<size_t>(4, all.size() - i));
    }
    HostMemory().Upload(state_.buffer.data(), all.data(), all.size());
  }
  const StateSpec spec_;
  const StateLayout layout_;
  State state_;
};

TEST_F(PackingTest, AsInMemory) {
  const StatePacking packing;
  EXPECT_FALSE(packing.rounded());
  EXPECT_EQ(packing.tag(), "");
  ASSERT_EQ(packing.bytes(state_.bytes), state_.bytes);
  std::vector<std::byte> packed(state_.bytes);
  packing.Read(HostMemory(), state_.buffer.data(), 0, packed);
  EXPECT_EQ(packed, state_.Get());
  State other(state_.bytes);
  packing.Write(HostMemory(), other.buffer.data(), 0, packed);
  EXPECT_EQ(other.Get(), state_.Get());
}

TEST_F(PackingTest, RoundedNumbersComeBackRoundedAndTheRestAsItWas) {
  const StatePacking packing = StatePacking::Rounded(spec_);
  EXPECT_TRUE(packing.rounded());
  EXPECT_NE(packing.tag(), "");
  const size_t bytes = packing.bytes(state_.bytes);
  EXPECT_EQ(bytes, 2u * (21 + 1000) + 10);
  std::vector<std::byte> packed(bytes);
  packing.Read(HostMemory(), state_.buffer.data(), 0, packed);
  State other(state_.bytes);
  packing.Write(HostMemory(), other.buffer.data(), 0, packed);
  const auto was = state_.Get(), is = other.Get();
  const auto numbers = [&](size_t layer, size_t tensor) {
    for (size_t i = 0; i < layout_.bytes(layer, tensor); i += 4) {
      float before = 0, after = 0;
      std::memcpy(&before, &was[layout_.offset(layer, tensor) + i], 4);
      std::memcpy(&after, &is[layout_.offset(layer, tensor) + i], 4);
      ASSERT_EQ(after, BF16ToF32(F32ToBF16(before))) << layer << " " << i;
    }
  };
  numbers(1, 0);
  numbers(2, 1);
  EXPECT_EQ(std::memcmp(&was[layout_.offset(2, 0)], &is[layout_.offset(2, 0)], 10), 0);
  // What was rounded once stays as it is.
  std::vector<std::byte> again(bytes);
  packing.Read(HostMemory(), other.buffer.data(), 0, again);
  EXPECT_EQ(again, packed);
}

TEST_F(PackingTest, PartsAreThoseOfTheWhole) {
  const StatePacking packing = StatePacking::Rounded(spec_);
  std::vector<std::byte> packed(packing.bytes(state_.bytes));
  packing.Read(HostMemory(), state_.buffer.data(), 0, packed);
  for (const size_t part : {2u, 14u, 42u, 500u}) {
    std::vector<std::byte> pieces(packed.size());
    for (size_t at = 0; at < pieces.size(); at += part) {
      packing.Read(HostMemory(), state_.buffer.data(), at,
                   std::span(pieces).subspan(at, std::min(part, pieces.size() - at)));
    }
    EXPECT_EQ(pieces, packed) << part;
    State whole(state_.bytes), other(state_.bytes);
    packing.Write(HostMemory(), whole.buffer.data(), 0, packed);
    for (size_t at = 0; at < packed.size(); at += part) {
      packing.Write(HostMemory(), other.buffer.data(), at,
                    std::span(packed).subspan(at, std::min(part, packed.size() - at)));
    }
    EXPECT_EQ(other.Get(), whole.Get()) << part;
  }
}

}  // namespace
}  // namespace reprise
