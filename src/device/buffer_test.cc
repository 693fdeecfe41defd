// SPDX-License-Identifier: Apache-2.0
// Proves alignment and zeroing.
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

}  // namespace
}  // namespace reprise
