// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/state_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace reprise::cli {
namespace {

size_t Sum(const std::vector<StateShare>& shares) {
  size_t sum = 0;
  for (const StateShare& share : shares) sum += share.budget;
  return sum;
}

TEST(StateShares, OneModelHasAll) {
  std::vector<StateShare> shares = {{.awake = true, .least = 10, .used = 50}};
  ShareOutState(1000, shares);
  EXPECT_EQ(shares[0].budget, 1000u);
}

TEST(StateShares, ASleepingModelKeepsWhatItHolds) {
  std::vector<StateShare> shares = {{.awake = true, .least = 100, .used = 200, .last_use_ms = 9},
                                    {.least = 100, .used = 300, .last_use_ms = 5}};
  ShareOutState(1000, shares);
  EXPECT_EQ(shares[1].budget, 300u) << "it cannot grow: nothing runs";
  EXPECT_EQ(shares[0].budget, 700u);
}

TEST(StateShares, TheOldestGivesWayFirst) {
  std::vector<StateShare> shares = {{.awake = true, .least = 50, .used = 600, .last_use_ms = 9},
                                    {.awake = true, .least = 50, .used = 300, .last_use_ms = 5},
                                    {.least = 50, .used = 200, .last_use_ms = 7}};
  ShareOutState(960, shares);
  EXPECT_EQ(shares[2].budget, 200u) << "used later than the other";
  EXPECT_EQ(shares[1].budget, 100u + 30u) << "down to what leaves a sixteenth free; half of that";
  EXPECT_EQ(shares[0].budget, 600u + 30u);
}

// Whatever the models hold: the promises of the header.
TEST(StateShares, BudgetsNeverAddUpToMoreThanThereIs) {
  Rng rng(1);
  for (int round = 0; round < 20000; ++round) {
    const size_t bytes = 1000 + rng.Below(1000000);
    std::vector<StateShare> shares(1 + rng.Below(6));
    size_t least = 0, used = 0;
    for (StateShare& share : shares) {
      share.awake = rng.Below(2) == 0;
      share.least = rng.Below(bytes / shares.size());
      share.used = rng.Below(bytes);
      share.last_use_ms = static_cast<int64_t>(rng.Below(100));
      if (share.awake) least += share.least;
      used += share.used;
    }
    ASSERT_LE(least, bytes);
    ShareOutState(bytes, shares);
    ASSERT_LE(Sum(shares), bytes) << round;
    const StateShare* newest = &shares.front();
    for (const StateShare& share : shares) {
      if (share.last_use_ms >= newest->last_use_ms) newest = &share;
      if (share.awake) {
        ASSERT_GE(share.budget, share.least) << round;
      } else {
        ASSERT_LE(share.budget, share.used) << round;
      }
    }
    if (used <= bytes - bytes / 16 && least == 0) {
      for (const StateShare& share : shares) ASSERT_GE(share.budget, share.used) << round;
    }
  }
}

}  // namespace
}  // namespace reprise::cli
