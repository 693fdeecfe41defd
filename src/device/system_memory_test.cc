// SPDX-License-Identifier: Apache-2.0
// Proves that the figure of resident memory follows what a process touches.
#include "device/system_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/buffer.h"

namespace reprise {
namespace {

TEST(SystemMemory, CountsWhatIsTouched) {
  const size_t before = ResidentMemoryBytes();
  EXPECT_GT(before, 0u);
  auto buffer = Buffer::Allocate(size_t{32} << 20);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->data(), 1, buffer->size());
  EXPECT_GE(ResidentMemoryBytes(), before + (size_t{24} << 20));
}

}  // namespace
}  // namespace reprise
