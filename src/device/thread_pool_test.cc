// SPDX-License-Identifier: Apache-2.0
// Proves that every thread runs once per Run, that ranges cover everything once, and that sleepers
// wake.
#include "device/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>

namespace reprise {
namespace {

TEST(ThreadPool, EveryThreadRunsOncePerRun) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadPool pool(size);
    std::vector<int> calls(static_cast<size_t>(size), 0);
    for (int round = 0; round < 2000; ++round) {
      pool.Run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
    }
    for (const int count : calls) EXPECT_EQ(count, 2000);
  }
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum{0};
    pool.Run([&](int thread) { sum += thread + 1; });
    EXPECT_EQ(sum, 6);
  }
}

TEST(ThreadPool, RangesCoverEverythingOnce) {
  ThreadPool pool(3);
  for (const int64_t count : {0, 1, 7, 64, 65, 1000}) {
    for (const int64_t grain : {1, 16, 64}) {
      std::vector<int> hits(static_cast<size_t>(count), 0);
      pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const int hit : hits) EXPECT_EQ(hit, 1);
    }
  }
}

}  // namespace
}  // namespace reprise
