// SPDX-License-Identifier: Apache-2.0
// Proves that two tiers under one memory give back what was computed, whichever of them has it,
// loses it or fails; and that each of them can serve alone what both were given.
#include "cache/tier/joined_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/tier/tier_test_machine.h"

namespace reprise {
namespace {

const StateSpec kKinds[] = {SpecOf(true, false, true), SpecOf(true, true, false),
                            SpecOf(false, false, true), SpecOf(false, true, true),
                            SpecOf(false, true, false)};

// A machine with two folders.
class Pair : public Machine {
 public:
  explicit Pair(const StateSpec& spec) : Machine(spec) {
    far = disk;
    far.path = disk.path + "-far";
    std::filesystem::remove_all(far.path);
  }
  // The process ends; what lies in these folders is gone when the next one begins.
  void BeginWithout(std::vector<std::string> paths) {
    cache.reset();
    for (const std::string& path : paths) std::filesystem::remove_all(path);
    Begin();
  }
};

TEST(JoinedTier, EachServesAlone) {
  for (const StateSpec& spec : kKinds) {
    for (const bool lose_near : {false, true}) {
      Pair pair(spec);
      pair.Begin();
      auto path = Join(Tokens(1, 700), Tokens(2, 90));
      (void)pair.Run(Tokens(1, 700), Tokens(2, 90));
      pair.Rest();
      const auto stats = pair.cache->stats().tiers;
      EXPECT_GT(stats[0].stores, 0u);
      EXPECT_EQ(stats[0].stores, stats[1].stores);

      pair.BeginWithout({lose_near ? pair.disk.path : pair.far.path});
      const ReuseReport report = pair.Run(Join(path, Tokens(3, 20)));
      EXPECT_EQ(report.used_tokens, 790);
      EXPECT_EQ(report.loaded_tokens, 790);
      EXPECT_EQ(pair.cache->stats().tiers[lose_near ? 1 : 0].fetches, 1u);
    }
  }
}

TEST(JoinedTier, TheNearerOneIsReadFirst) {
  Pair pair(kKinds[0]);
  pair.Begin();
  (void)pair.Run(Tokens(1, 700));
  pair.Rest();
  pair.BeginWithout({});
  EXPECT_EQ(pair.Run(Join(Tokens(1, 700), Tokens(2, 30))).loaded_tokens, 699);
  EXPECT_EQ(pair.cache->stats().tiers[0].fetches, 1u);
  EXPECT_EQ(pair.cache->stats().tiers[1].fetches, 0u);
}

// One that lost what a conversation began with is given all of it with the next turn.
TEST(JoinedTier, WhatOneLacksItGetsAgain) {
  for (const StateSpec& spec : kKinds) {
    for (const bool lose_near : {false, true}) {
      Pair pair(spec);
      const std::string& lost = lose_near ? pair.disk.path : pair.far.path;
      const std::string& other = lose_near ? pair.far.path : pair.disk.path;
      pair.Begin();
      auto path = Tokens(1, 600);
      (void)pair.Run(path);
      pair.Rest();
      pair.BeginWithout({lost});
      path = Join(path, Tokens(2, 100));
      EXPECT_GE(pair.Run(path).used_tokens, 599);
      pair.Rest();
      pair.BeginWithout({other});
      EXPECT_GE(pair.Run(Join(path, Tokens(3, 50))).used_tokens, 699);
    }
  }
}

TEST(JoinedTier, OneThatFailsStopsNothing) {
  for (const bool near_fails : {false, true}) {
    Pair pair(kKinds[0]);
    std::atomic<bool> fails = true;
    (near_fails ? pair.disk : pair.far).fault = [&](const char*) { return fails ? EIO : 0; };
    fails = false;
    pair.Begin();
    fails = true;
    (void)pair.Run(Tokens(1, 700));
    pair.Rest();
    fails = false;
    EXPECT_EQ(pair.cache->stats().tiers[near_fails ? 1 : 0].stores_failed, 0u);
    pair.BeginWithout({});
    EXPECT_EQ(pair.Run(Join(Tokens(1, 700), Tokens(2, 30))).loaded_tokens, 699);
  }
}

// What one of them has is found, and more goes down to it, while the other one writes for ever;
// that one gets what it has missed when there is time.
TEST(JoinedTier, AQuickOneDoesNotWaitForASlowOne) {
  for (const StateSpec& spec : kKinds) {
    Pair pair(spec);
    std::atomic<bool> hangs = false;
    pair.far.fault = [&](const char*) {
      while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return 0;
    };
    pair.Begin();
    hangs = true;
    constexpr uint64_t kTalks = 9;
    for (uint64_t i = 1; i <= kTalks; ++i) {
      (void)pair.Run(Tokens(i, 300));
      for (int wait = 0; wait < 4000 && pair.cache->stats().tiers[0].stores < i; ++wait) {
        (void)pair.cache->Maintain();
        pair.Step();
      }
      ASSERT_EQ(pair.cache->stats().tiers[0].stores, i) << "held up by the slow one";
      ASSERT_TRUE(pair.cache->CheckInvariants().ok());
    }
    EXPECT_LE(pair.cache->moves_under_way(), 6u) << "they hold memory";
    hangs = false;
    EXPECT_TRUE(pair.cache->StoreAll(std::chrono::seconds(20)));
    EXPECT_EQ(pair.cache->stats().tiers[0].stores, kTalks) << "nothing twice";
    EXPECT_EQ(pair.cache->stats().tiers[1].stores, kTalks);
    pair.BeginWithout({pair.disk.path});
    for (uint64_t i = 1; i <= kTalks; ++i) {
      EXPECT_GE(pair.Run(Join(Tokens(i, 300), Tokens(90, 20))).loaded_tokens, 299) << i;
    }
  }
}

// Everything at random: turns, branches, restarts, folders that are gone, faults, resets.
TEST(JoinedTier, WhateverHappensTheStateIsRight) {
  std::array<uint64_t, 2> fetches = {};
  for (uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Pair pair(kKinds[seed % std::size(kKinds)]);
    std::atomic<int> faults = 0;
    pair.options.budget_bytes = (768 + rng.Below(1024)) << 10;
    pair.disk.bytes_max = (256 + rng.Below(1024)) << 10;
    pair.far.bytes_max = (256 + rng.Below(4096)) << 10;
    pair.disk.fault =
        pair.far.fault = [&](const char*) { return faults > 0 && --faults == 0 ? EIO : 0; };
    pair.Begin();
    RandomTalk talk(seed);
    for (int step = 0; step < 80 && !testing::Test::HasFatalFailure(); ++step) {
      talk.Turn(rng, pair);
      const auto count = [&] {
        for (size_t i = 0; i < 2; ++i) fetches[i] += pair.cache->stats().tiers[i].fetches;
      };
      switch (rng.Below(14)) {
        case 0:
          pair.Rest();
          break;
        case 1:
          count();
          pair.BeginWithout({});
          break;
        case 2:
          count();
          pair.BeginWithout({rng.Below(2) == 0 ? pair.disk.path : pair.far.path});
          break;
        case 3:
          (void)pair.cache->StoreAll(std::chrono::milliseconds(rng.Below(20)));
          break;
        case 4:
          faults = static_cast<int>(1 + rng.Below(10));
          break;
        case 5:
          pair.cache->ResetAll();
          break;
        default:
          (void)pair.cache->Maintain();
      }
      const Status sound = pair.cache->CheckInvariants();
      ASSERT_TRUE(sound.ok()) << sound.message();
    }
  }
  EXPECT_GT(fetches[0], 15u);
  EXPECT_GT(fetches[1], 15u);
}

}  // namespace
}  // namespace reprise
