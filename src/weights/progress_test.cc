// SPDX-License-Identifier: Apache-2.0
// Proves that a listener sees a count that rises, from one thread at a time, and the end once.
#include "weights/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace reprise {
namespace {

TEST(Progress, RisesToTheEndFromManyThreads) {
  constexpr uint64_t kTotal = 4 * 25'000 * 7;
  std::vector<uint64_t> seen;
  Progress progress(kTotal, [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, kTotal);
    seen.push_back(done);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25'000; ++i) progress.Advance(7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_FALSE(seen.empty());
  EXPECT_LE(seen.size(), 1001u);
  EXPECT_EQ(seen.back(), kTotal);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_LT(seen[i - 1], seen[i]);
}

TEST(Progress, SmallTotalsAndNoListener) {
  int calls = 0;
  Progress progress(3, [&](uint64_t, uint64_t) { ++calls; });
  progress.Advance(0);
  EXPECT_EQ(calls, 0);
  for (int i = 0; i < 3; ++i) progress.Advance(1);
  EXPECT_EQ(calls, 3);
  Progress silent(1, nullptr);
  silent.Advance(1);
}

}  // namespace
}  // namespace reprise
