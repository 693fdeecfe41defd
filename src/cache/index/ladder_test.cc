// SPDX-License-Identifier: Apache-2.0
// Proves the ladder from the end of a prompt: an edit near the end costs little, the ladders of the
// latest prompts take little, and they go before anything else does.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

StateIndex::Options LadderOptions(size_t budget) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, true);
  options.spec.token_cost = 1e9;  // beside which a copy of 128 KiB is nothing
  options.cache.budget_bytes = budget;
  options.cache.context_tokens = 4096;
  return options;
}

TEST(Ladder, AnEditNearTheEndCostsTwiceItsDistance) {
  for (const int32_t size : {65, 129, 430, 1000, 5'000, 32'768}) {
    IndexClient client(LadderOptions(size_t{1} << 32));
    const auto prompt = RandomTokens(1, size_t(size));
    client.Run(prompt);
    for (int32_t d = 1; d < size; d = d < 200 ? d + 1 : d + d / 7) {
      auto edited = prompt;
      for (int32_t i = size - d; i < size; ++i) edited[size_t(i)] = 60'000 + i;
      ASSERT_LE(size - client.Reusable(edited), 2 * d + 64) << "of " << size;
    }
  }
}

TEST(Ladder, TakesAtMostEightHundredths) {
  constexpr size_t kBudget = 200 << 20;
  IndexClient client(LadderOptions(kBudget));
  size_t most = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    client.index.SetTime(int64_t(i));
    client.Run(RandomTokens(i, 3000));
    most = std::max(most, client.index.ladder_bytes());
    ASSERT_LE(client.index.ladder_bytes(), kBudget / 100 * 8);
    ASSERT_TRUE(client.index.CheckInvariants().ok()) << client.index.CheckInvariants().message();
  }
  EXPECT_GT(most, kBudget / 100 * 6) << "and it is used";
  // That of the latest prompt stands.
  auto edited = RandomTokens(59, 3000);
  edited[2500] = 60'000;
  EXPECT_LE(3000 - client.Reusable(edited), 2 * 500 + 64);
}

// When memory is short, ladders are gone before the first end of a prompt is; but for that of the
// prompt which runs and has taken its memory already.
TEST(Ladder, GoesFirst) {
  constexpr size_t kBudget = 40 << 20;
  IndexClient client(LadderOptions(kBudget));
  bool full = false;
  for (uint64_t i = 0; i < 100 && !full; ++i) {
    client.index.SetTime(int64_t(i));
    client.Run(RandomTokens(i, 500));
    const bool first_gone = client.Reusable(RandomTokens(0, 500)) < 499;
    if (first_gone) {
      full = true;
      EXPECT_LE(client.index.ladder_bytes(), size_t{3} * (128 << 10));
    }
  }
  EXPECT_TRUE(full);
}

// Where copying a state is dear beside computing, there are fewer rungs or none.
TEST(Ladder, StandsOnlyWhereItIsCheap) {
  StateIndex::Options options = LadderOptions(1 << 30);
  options.spec.token_cost = 1000;
  IndexClient client(std::move(options));
  client.Run(RandomTokens(1, 3000));
  EXPECT_EQ(client.index.ladder_bytes(), 0u);
}

}  // namespace
}  // namespace reprise
