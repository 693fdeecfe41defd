// SPDX-License-Identifier: Apache-2.0
// Proves that every thread runs once per Run, that ranges cover everything once, and that sleepers
// wake.
#include "device/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>

namespace reprise {
namespace {

TEST(ThreadPool, TheCallerTakesPartAndNobodyRunsTwice) {
  for (const int size : {1, 2, 3, 5}) {
    ThreadPool pool(size);
    for (int round = 0; round < 2000; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(size));
      pool.Run([&](int thread) { ++calls[static_cast<size_t>(thread)]; });
      ASSERT_EQ(calls[0], 1);
      for (const auto& count : calls) ASSERT_LE(count, 1);
    }
  }
}

TEST(ThreadPool, WorkIsDoneOnceWhoeverDoesIt) {
  ThreadPool pool(3);
  for (int round = 0; round < 2000; ++round) {
    constexpr int kUnits = 17;
    std::atomic<int> next{0};
    int done[kUnits] = {};  // plain: Run makes the workers' writes visible
    pool.Run([&](int) {
      for (int unit = next++; unit < kUnits; unit = next++) ++done[unit];
    });
    for (const int count : done) ASSERT_EQ(count, 1);
  }
}

// What is expected is only asked for: any address will do, also one that nothing lies at, and work
// comes first.
TEST(ThreadPool, WhatIsExpectedIsAHint) {
  ThreadPool pool(3);
  std::vector<std::byte> memory(1 << 20);
  for (int round = 0; round < 2000; ++round) {
    const std::byte* const nowhere = reinterpret_cast<const std::byte*>(uintptr_t{1} << 40);
    for (int thread = 1; thread < pool.size(); ++thread) {
      pool.Expect(thread, round % 3 == 0 ? nowhere : memory.data(), memory.size());
    }
    std::atomic<int> next{0};
    int done[5] = {};
    pool.Run([&](int) {
      for (int unit = next++; unit < 5; unit = next++) ++done[unit];
    });
    for (const int count : done) ASSERT_EQ(count, 1);
    memory[size_t(round)] = std::byte{1};  // nobody reads it
  }
}

// A worker that sleeps is woken and gets its share, given time.
TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(2);
  bool helped = false;
  for (int round = 0; round < 200 && !helped; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> threads{0};
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    pool.Run([&](int) {
      ++threads;
      while (threads < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    });
    helped = threads == 2;
  }
  EXPECT_TRUE(helped);
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
