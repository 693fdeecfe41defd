// SPDX-License-Identifier: Apache-2.0
// Proves alignment, zeroing, and that a warmed-up arena hands out the same memory again.
#include "device/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace reprise {
namespace {

TEST(Buffer, IsAlignedAndZero) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    auto buffer = Buffer::Allocate(size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size > (2u << 20) ? 2u << 20 : 64u),
              0u);
    for (const std::byte b : buffer->bytes()) ASSERT_EQ(b, std::byte{0});
    std::memset(buffer->data(), 1, size);
    Buffer moved = std::move(*buffer);
    EXPECT_EQ(buffer->data(), nullptr);
    moved.Discard();
    EXPECT_EQ(moved.data()[size - 1], std::byte{0});
  }
}

TEST(Buffer, RefusesTheImpossible) {
  EXPECT_EQ(Buffer::Allocate(SIZE_MAX).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Buffer::Allocate(SIZE_MAX / 2).status().code(), StatusCode::kResourceExhausted);
}

TEST(ScratchArena, ReusesItsMemory) {
  ScratchArena arena;
  float* first = arena.Floats(100);
  float* second = arena.Floats(5'000'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % 64, 0u);
  second[4'999'999] = 1;
  arena.Reset();
  EXPECT_EQ(arena.Floats(100), first);
  EXPECT_EQ(arena.Floats(5'000'000), second);
  EXPECT_GE(arena.peak_bytes(), 20'000'400u);
}

TEST(ScratchArena, AScopeGivesBackWhatItTook) {
  ScratchArena arena;
  {
    ScratchScope empty(arena);
    arena.Floats(10);
  }
  float* outer = arena.Floats(100);
  float* inner = nullptr;
  float* large = nullptr;
  for (int layer = 0; layer < 3; ++layer) {
    ScratchScope scope(arena);
    float* a = arena.Floats(100);
    float* b = arena.Floats(5'000'000);
    if (layer == 0) inner = a, large = b;
    EXPECT_EQ(a, inner);
    EXPECT_EQ(b, large);
  }
  EXPECT_EQ(arena.Floats(100), inner);
  EXPECT_NE(inner, outer);
}

}  // namespace
}  // namespace reprise
