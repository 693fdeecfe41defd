// SPDX-License-Identifier: Apache-2.0
// Proves that memory figures are plausible on this machine and readable by people.
#include "device/system_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/buffer.h"

namespace reprise {
namespace {

TEST(SystemMemory, CountsWhatIsTouched) {
  EXPECT_GT(AvailableMemoryBytes(), size_t{1} << 20);
  const size_t before = ResidentMemoryBytes();
  EXPECT_GT(before, 0u);
  auto buffer = Buffer::Allocate(size_t{32} << 20);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->data(), 1, buffer->size());
  EXPECT_GE(ResidentMemoryBytes(), before + (size_t{24} << 20));
}

TEST(SystemMemory, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(1'500'000'000), "1.50 GB");
  EXPECT_EQ(FormatBytes(20'201'472), "20.2 MB");
  EXPECT_EQ(FormatBytes(764'000'000), "764 MB");
  EXPECT_EQ(FormatBytes(999'999'999), "1.00 GB");
}

}  // namespace
}  // namespace reprise
