// SPDX-License-Identifier: Apache-2.0
// Proves that steps wait for copies of what goes down no longer than their share, be they short or
// long, and that nothing waits at rest.
#include "cache/tier/copy_pace.h"

#include <gtest/gtest.h>

#include "cache/tier/tier_test_machine.h"

namespace reprise {
namespace {

// Steps of so long with copies of so long between them, if there are any to do; the time that
// copies take in all.
int64_t Copied(HandClock& clock, CopyPace& pace, int steps, int64_t step_ns, int64_t copy_ns,
               int64_t* most = nullptr) {
  int64_t copied = 0;
  for (int i = 0; i < steps; ++i) {
    clock.now_ns += step_ns;
    pace.Begin(Tier::When::kBetweenSteps);
    int64_t here = 0;
    while (pace.MayCopy()) {
      pace.Spend([&] { clock.now_ns += copy_ns; });
      here += copy_ns;
    }
    if (most != nullptr) *most = std::max(*most, here);
    copied += here;
  }
  return copied;
}

TEST(CopyPace, CopiesTakeTheirShareOfTheTime) {
  for (const int64_t step_ns : {50'000, 1'000'000, 30'000'000}) {
    for (const int64_t copy_ns : {2'000, 10'000, 80'000}) {
      HandClock clock;
      CopyPace pace(clock);
      const int64_t begin = clock.now_ns;
      int64_t most = 0;
      const int64_t copied = Copied(clock, pace, 2000, step_ns, copy_ns, &most);
      const int64_t share = (clock.now_ns - begin) / CopyPace::kShare;
      EXPECT_LE(copied, share + copy_ns) << step_ns << " " << copy_ns;
      EXPECT_GE(copied, share - share / 4 - copy_ns) << step_ns << " " << copy_ns;
      // No step waits for what others have not used.
      EXPECT_LE(most, step_ns / CopyPace::kShare + 2 * copy_ns + 10'000);
    }
  }
}

TEST(CopyPace, TimeWithoutCopiesIsNotSavedUp) {
  HandClock clock;
  CopyPace pace(clock);
  for (int i = 0; i < 1000; ++i) {
    clock.now_ns += 10'000'000;
    pace.Begin(Tier::When::kBetweenSteps);
  }
  EXPECT_LE(Copied(clock, pace, 1, 1'000'000, 1'000), 12'000 + 80'000);
}

TEST(CopyPace, AThreadThatWasDisplacedIsNotHeldToIt) {
  HandClock clock;
  CopyPace pace(clock);
  (void)Copied(clock, pace, 20, 1'000'000, 10'000);
  clock.now_ns += 2'000'000;
  pace.Begin(Tier::When::kBetweenSteps);
  ASSERT_TRUE(pace.MayCopy());
  pace.Spend([&] { clock.now_ns += 10'000'000'000; });
  EXPECT_FALSE(pace.MayCopy());
  EXPECT_GT(Copied(clock, pace, 200, 1'000'000, 10'000), 0) << "a millisecond's worth is over";
}

TEST(CopyPace, WhatCopiesCostElsewhereIsPaidOffFirst) {
  HandClock clock;
  CopyPace pace(clock);
  (void)Copied(clock, pace, 20, 1'000'000, 10'000);
  const int64_t begin = clock.now_ns;
  int64_t copied = 0, charged = 0;
  for (int round = 0; round < 50; ++round) {
    clock.now_ns += 1'000'000;
    pace.Begin(Tier::When::kBetweenSteps);
    pace.Charge(2'000'000);  // much more than a step may be late by
    charged += 2'000'000;
    const auto paid = static_cast<int>(2 * CopyPace::kShare);
    EXPECT_EQ(Copied(clock, pace, paid - 2, 1'000'000, 10'000), 0);
    copied += Copied(clock, pace, paid, 1'000'000, 10'000);
  }
  const int64_t share = (clock.now_ns - begin) / CopyPace::kShare;
  EXPECT_LE(copied + charged, share + 20'000);
  EXPECT_GE(copied + charged, share - share / 4);
  pace.Begin(Tier::When::kAtRest);
  pace.Charge(1'000'000'000);
  EXPECT_TRUE(pace.MayCopy());
  EXPECT_GT(Copied(clock, pace, 20, 1'000'000, 10'000), 0) << "nobody waited for it";
}

TEST(CopyPace, AtRestNothingWaits) {
  HandClock clock;
  CopyPace pace(clock);
  for (int i = 0; i < 3; ++i) {
    pace.Begin(Tier::When::kAtRest);
    for (int copy = 0; copy < 1000; ++copy) {
      ASSERT_TRUE(pace.MayCopy());
      pace.Spend([&] { clock.now_ns += 1'000'000; });
    }
  }
  pace.Begin(Tier::When::kAtRest);
  pace.Begin(Tier::When::kBetweenSteps);
  EXPECT_FALSE(pace.MayCopy()) << "no time has passed";
}

}  // namespace
}  // namespace reprise
