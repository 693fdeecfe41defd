// SPDX-License-Identifier: Apache-2.0
// Proves that limits of control groups count, whichever version sets them and on whatever level,
// and that nobody is pinned to CPUs that others may be using.
#include "device/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "device/thread_pool.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() : root_(fs::path(testing::TempDir()) / "processors_test") {
    fs::remove_all(root_);
  }
  ~ProcessorsTest() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int AtOnce() { return FindProcessors(root_).at_once; }

  const fs::path root_;
  const int all_ = static_cast<int>(FindProcessors("/nowhere").cpus.size());
};

TEST_F(ProcessorsTest, WithoutGroupsTheMaskDecides) {
  EXPECT_EQ(AtOnce(), all_);
  EXPECT_GE(all_, 1);
}

TEST_F(ProcessorsTest, Version2OnAnyLevelAndRoundedUp) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(AtOnce(), all_);
  Write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(AtOnce(), 1);
  Write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(AtOnce(), std::min(2, all_));
  Write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(AtOnce(), 1);
}

TEST_F(ProcessorsTest, Version1) {
  Write("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/docker/1\n");
  Write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AtOnce(), all_);
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AtOnce(), 1);
}

TEST_F(ProcessorsTest, NonsenseIsNoLimit) {
  Write("proc/self/cgroup", "0::/\nrubbish\n::::\n");
  for (const char* text : {"", "max", "x 5", "0 100000", "-5 100000", "100000 0", "100000"}) {
    Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(AtOnce(), all_) << text;
  }
}

TEST(MayPinTest, OnlyWhereNothingIsLeftToChoose) {
  EXPECT_TRUE(MayPin({{0, 1, 2, 3}, 4}, 4));
  EXPECT_FALSE(MayPin({{0, 1, 2, 3}, 4}, 3));  // which three?
  EXPECT_FALSE(MayPin({{0, 1, 2, 3}, 4}, 5));
  EXPECT_FALSE(MayPin({{0, 1, 2, 3}, 2}, 2));  // half of the time of four
  EXPECT_FALSE(MayPin({{0, 1, 2, 3}, 2}, 4));
}

// Workers of a pool that leaves CPUs to others keep the whole mask.
TEST(MayPinTest, ThreadsOfAPartialPoolAreFree) {
  const Processors processors = FindProcessors();
  const int threads = static_cast<int>(processors.cpus.size()) + 1;  // as a smaller pool would be
  ThreadPool pool(threads);
  std::atomic<int> narrowed{0};
  pool.Run([&](int) {
    cpu_set_t set;
    CPU_ZERO(&set);
    ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) != static_cast<int>(processors.cpus.size())) ++narrowed;
  });
  EXPECT_EQ(narrowed, 0);
}

}  // namespace
}  // namespace reprise
