// SPDX-License-Identifier: Apache-2.0
// Proves that limits of control groups count, whichever version sets them and on whatever level,
// that cores come before their siblings, and that nobody is bound to CPUs that others may be using.
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

// Four CPUs on two cores, numbered as Linux numbers them: siblings behind, or side by side.
TEST_F(ProcessorsTest, CoresComeBeforeTheirSiblings) {
  const auto siblings = [&](int cpu, const std::string& list) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    Write(folder + "/topology/thread_siblings_list", list + "\n");
  };
  for (const int cpu : {0, 2}) siblings(cpu, "0,2");
  for (const int cpu : {1, 3}) siblings(cpu, "1,3");
  Processors found = FindProcessors(root_, {0, 1, 2, 3});
  EXPECT_EQ(found.cpus, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(found.cores, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(DefaultThreads(found), 2);

  for (const int cpu : {0, 1}) siblings(cpu, "0-1");
  for (const int cpu : {2, 3}) siblings(cpu, "2-3");
  found = FindProcessors(root_, {0, 1, 2, 3});
  EXPECT_EQ(found.cpus, (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(found.cores, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  // A mask leaves one of a core, and a CPU that nothing is known of.
  found = FindProcessors(root_, {1, 2, 3, 7});
  EXPECT_EQ(found.cpus, (std::vector<int>{1, 2, 7, 3}));
  EXPECT_EQ(DefaultThreads(found), 3);
  // Less time than cores.
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(DefaultThreads(FindProcessors(root_, {1, 2, 3, 7})), 2);
}

TEST_F(ProcessorsTest, RubbishAboutSiblingsIsACoreOfOnesOwn) {
  for (const char* text : {"", "x", "-1", ",3"}) {
    Write("sys/devices/system/cpu/cpu3/topology/thread_siblings_list", text);
    EXPECT_EQ(FindProcessors(root_, {3, 5}).cores.size(), 2u) << text;
  }
}

TEST(CpusOfThreadTest, OnlyWhereNothingIsLeftToChoose) {
  using Cpus = std::vector<int>;
  EXPECT_EQ(CpusOfThread({{0, 1, 2, 3}, 4}, 4, 3), Cpus{3});
  EXPECT_EQ(CpusOfThread({{0, 1, 2, 3}, 4}, 3, 1), Cpus());  // which three?
  EXPECT_EQ(CpusOfThread({{0, 1, 2, 3}, 4}, 5, 4), Cpus());
  EXPECT_EQ(CpusOfThread({{0, 1, 2, 3}, 2}, 2, 1), Cpus());  // half of the time of four
  EXPECT_EQ(CpusOfThread({{0, 1, 2, 3}, 2}, 4, 1), Cpus());
  const Processors siblings = {{0, 2, 1, 3}, 4, {{0, 1}, {2, 3}}};
  EXPECT_EQ(CpusOfThread(siblings, 4, 1), Cpus{2});
  EXPECT_EQ(CpusOfThread(siblings, 2, 1), (Cpus{2, 3}));
  EXPECT_EQ(CpusOfThread(siblings, 3, 1), Cpus());
}

// Workers of a pool that leaves CPUs to others keep the whole mask.
TEST(CpusOfThreadTest, ThreadsOfAPartialPoolAreFree) {
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
