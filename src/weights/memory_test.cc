// SPDX-License-Identifier: Apache-2.0
// Proves that the tightest limit counts, whichever version of control groups sets it, and that the
// refusal has the numbers.
#include "weights/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace reprise {
namespace {

namespace fs = std::filesystem;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : root_(fs::path(testing::TempDir()) / "memory_test") {
    fs::remove_all(root_);
    Write("proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n");
  }
  ~MemoryTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  AvailableMemory Find() { return FindAvailableMemory(root_); }

  const fs::path root_;
};

TEST_F(MemoryTest, WithoutGroupsTheMachineDecides) {
  EXPECT_EQ(Find().bytes, 8000000ull * 1024);
  EXPECT_EQ(Find().limited_by, "this machine");
}

TEST_F(MemoryTest, WithoutAnythingNothingIsKnown) {
  fs::remove_all(root_);
  EXPECT_EQ(Find().bytes, UINT64_MAX);
  EXPECT_TRUE(CheckFits(UINT64_MAX, "the weights", Find()).ok());
}

TEST_F(MemoryTest, Version2CountsEveryGroupAbove) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/memory.max", "1000000\n");
  Write("sys/fs/cgroup/a/memory.current", "700000\n");
  Write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 200000\nactive_file 1\n");
  EXPECT_EQ(Find().bytes, 500000u);
  EXPECT_NE(Find().limited_by.find("cgroup"), std::string::npos);
  Write("sys/fs/cgroup/a/memory.current", "9000000\n");
  EXPECT_EQ(Find().bytes, 0u);
}

// In a container the path may be the host's; the limit stands at the top.
TEST_F(MemoryTest, Version2AtTheTop) {
  Write("proc/self/cgroup", "0::/docker/not-visible-here\n");
  Write("sys/fs/cgroup/memory.max", "123456");
  EXPECT_EQ(Find().bytes, 123456u);
}

TEST_F(MemoryTest, Version1) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n1:name=systemd:/\n");
  Write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3000000\n");
  Write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000000\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(Find().bytes, 2000000u);
}

TEST_F(MemoryTest, DamagedFilesAreIgnored) {
  Write("proc/self/cgroup", "0\n:\n::\n0::\n\nx:memory:rel\n0::/a");
  Write("sys/fs/cgroup/a/memory.max", "-5");
  EXPECT_EQ(Find().bytes, 8000000ull * 1024);
}

TEST(Memory, ThisMachineHasSome) {
  EXPECT_GT(FindAvailableMemory().bytes, 0u);
  EXPECT_LT(FindAvailableMemory().bytes, UINT64_MAX);
}

TEST(Memory, TheRefusalHasTheNumbers) {
  const AvailableMemory available{uint64_t{3} << 30, "this machine"};
  EXPECT_TRUE(CheckFits(uint64_t{3} << 30, "the weights", available).ok());
  const Status status = CheckFits((uint64_t{54} << 30) + (1 << 29), "the weights", available);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "the weights need 54.5 GiB of memory, but this machine has 3.0 GiB left: take a smaller "
      "model or a smaller type (--weights q4_0)");
}

TEST(Memory, FormatBytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace reprise
