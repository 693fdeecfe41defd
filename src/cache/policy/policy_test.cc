// SPDX-License-Identifier: Apache-2.0
// Proves where snapshots are planned, that the eviction order is a heap and a list at once, and
// what the value of an entry depends on.
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "cache/policy/eviction_order.h"
#include "cache/policy/scan_guard.h"
#include "cache/policy/snapshot_plan.h"
#include "cache/policy/value.h"

namespace reprise {
namespace {

using Plans = std::vector<PlannedSnapshot>;

class PlanTest : public testing::Test {
 protected:
  Plans Plan(int32_t prompt, int32_t matched, std::vector<Boundary> boundaries,
             int32_t branch = 0) {
    input_.prompt_tokens = prompt;
    input_.matched = matched;
    input_.branch = branch;
    input_.boundaries = boundaries;
    return PlanSnapshots(input_);
  }
  SnapshotPlanInput input_;
};

TEST_F(PlanTest, FirstSightOfAChat) {
  const auto planned = Plan(1504, 0,
                            {{1000, BoundaryKind::kSystem},
                             {1100, BoundaryKind::kMessage},
                             {1300, BoundaryKind::kMessage},
                             {1500, BoundaryKind::kMessage}});
  EXPECT_EQ(planned, (Plans{{1000, SnapshotReason::kSystem},
                            {1100, SnapshotReason::kMessage},
                            {1300, SnapshotReason::kMessage},
                            {1500, SnapshotReason::kPromptEnd}}))
      << "four tokens open the reply: the end of the last message is the prompt end";
}

TEST_F(PlanTest, APromptWithoutBoundariesLeavesOneTokenToRun) {
  EXPECT_EQ(Plan(500, 0, {}), (Plans{{499, SnapshotReason::kPromptEnd}}));
  EXPECT_EQ(Plan(500, 450, {}), Plans{}) << "too near to what is there";
  EXPECT_EQ(Plan(40, 0, {}), Plans{}) << "too short to be worth a state";
  EXPECT_EQ(Plan(1, 0, {}), Plans{});
}

TEST_F(PlanTest, NextTurnTakesOnlyWhatIsNew) {
  const std::vector<Boundary> turns = {{1000, BoundaryKind::kSystem},
                                       {1100, BoundaryKind::kMessage},
                                       {1300, BoundaryKind::kMessage},
                                       {1400, BoundaryKind::kMessage}};
  EXPECT_EQ(Plan(1404, 1100, turns),
            (Plans{{1300, SnapshotReason::kMessage}, {1400, SnapshotReason::kPromptEnd}}));
}

TEST_F(PlanTest, MeaningWinsWhereTwoAreNear) {
  EXPECT_EQ(Plan(1030, 0, {{1000, BoundaryKind::kSystem}, {1020, BoundaryKind::kMessage}}),
            (Plans{{1000, SnapshotReason::kSystem}, {1020, SnapshotReason::kPromptEnd}}))
      << "where system and tools end, others begin: however near the prompt's end is";
  EXPECT_EQ(Plan(2000, 0, {{990, BoundaryKind::kMessage}, {1000, BoundaryKind::kSystem}}),
            (Plans{{1000, SnapshotReason::kSystem}, {1999, SnapshotReason::kPromptEnd}}));
  EXPECT_EQ(Plan(2000, 0, {{990, BoundaryKind::kBreakpoint}, {991, BoundaryKind::kBreakpoint}}),
            (Plans{{990, SnapshotReason::kBreakpoint},
                   {991, SnapshotReason::kBreakpoint},
                   {1999, SnapshotReason::kPromptEnd}}))
      << "a client gets what it asks for";
}

TEST_F(PlanTest, ABranchIsCutAtItsSecondSighting) {
  EXPECT_EQ(Plan(2000, 0, {}, 700),
            (Plans{{700, SnapshotReason::kBranch}, {1999, SnapshotReason::kPromptEnd}}));
  EXPECT_EQ(Plan(2000, 690, {}, 700), (Plans{{1999, SnapshotReason::kPromptEnd}}));
  EXPECT_EQ(Plan(90, 0, {}, 50),
            (Plans{{50, SnapshotReason::kBranch}, {89, SnapshotReason::kPromptEnd}}))
      << "a short instruction that many inputs follow";
  EXPECT_EQ(Plan(70, 0, {{50, BoundaryKind::kSystem}}), (Plans{{50, SnapshotReason::kSystem}}));
}

TEST_F(PlanTest, LongMessagesGetALadder) {
  EXPECT_EQ(Plan(14000, 0, {}), (Plans{{4096, SnapshotReason::kLadder},
                                       {8192, SnapshotReason::kLadder},
                                       {13999, SnapshotReason::kPromptEnd}}))
      << "12288 is less than half a rung from the end";
}

TEST_F(PlanTest, GridAndCount) {
  input_.grid = 64;
  EXPECT_EQ(Plan(1000, 0, {}), (Plans{{960, SnapshotReason::kPromptEnd}}));
  input_.count_max = 3;
  std::vector<Boundary> many;
  for (int32_t p = 100; p < 5000; p += 100) many.push_back({p, BoundaryKind::kMessage});
  EXPECT_EQ(Plan(6000, 0, many).size(), 3u);
}

TEST_F(PlanTest, HostileBoundariesDoNoHarm) {
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<Boundary> boundaries(rng.Below(50));
    for (Boundary& b : boundaries) {
      b.position = static_cast<int32_t>(rng.Next());
      if (rng.Below(2) == 0) b.position = static_cast<int32_t>(rng.Below(3000));
      b.kind = static_cast<BoundaryKind>(rng.Below(3));
    }
    const int32_t prompt = 1 + static_cast<int32_t>(rng.Below(3000));
    const int32_t matched = static_cast<int32_t>(rng.Below(prompt));
    int32_t last = matched;
    for (const PlannedSnapshot& one : Plan(prompt, matched, boundaries, prompt / 2)) {
      ASSERT_GT(one.position, last);
      last = one.position;
    }
    ASSERT_LT(last, prompt);
  }
}

TEST(EvictionOrder, AgreesWithAMap) {
  Rng rng(1);
  EvictionOrder order;
  std::multimap<double, uint32_t> truth;
  std::vector<EntryId> live;
  const auto forget = [&](EntryId id) {
    for (auto it = truth.begin(); it != truth.end(); ++it) {
      if (it->second == id.value) {
        truth.erase(it);
        return;
      }
    }
  };
  int64_t now = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t what = rng.Below(6);
    if (what < 2 || live.empty()) {
      Entry entry;
      entry.used_ms = ++now;
      live.push_back(order.Add(entry));
    }
    const size_t pick = rng.Below(live.size());
    const EntryId id = live[pick];
    if (what == 2) {
      order.Touch(id, ++now);
    } else if (what == 3 && live.size() > 1) {
      order.Remove(id);
      forget(id);
      live.erase(live.begin() + pick);
    } else if (what == 4) {
      order.Pull(id);
      forget(id);
    } else {
      const double key = static_cast<double>(rng.Below(1000));
      forget(id);
      order.Push(id, key);
      truth.emplace(key, id.value);
    }
    ASSERT_EQ(order.Min().valid(), !truth.empty());
    if (!truth.empty()) {
      ASSERT_EQ(order.key(order.Min()), truth.begin()->first);
    }
    const Status status = order.CheckInvariants();
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

TEST(EvictionOrder, ColdEntriesGoFirstWhereThatIsAskedFor) {
  EvictionOrder order;
  const auto add = [&order](double key, bool cold, uint32_t owner) {
    Entry entry;
    entry.cold = cold;
    entry.owner = owner;
    const EntryId id = order.Add(entry);
    order.Push(id, key);
    return id;
  };
  const EntryId warm = add(1, false, 0), cold = add(5, true, 1), colder = add(3, true, 2);
  EXPECT_EQ(order.Min(), warm);
  EXPECT_EQ(order.Min(~uint64_t{0}, true), colder);
  EXPECT_EQ(order.Min(0b011, true), cold);
  EXPECT_EQ(order.Min(0b001, true), warm) << "that owner has no cold one";
  order.SetCold(warm, true);
  EXPECT_EQ(order.Min(~uint64_t{0}, true), warm);
  order.SetCold(warm, false);
  order.SetCold(colder, false);
  EXPECT_EQ(order.Min(~uint64_t{0}, true), cold);
  order.Pull(cold);
  order.SetCold(cold, false);
  EXPECT_FALSE(order.queued(cold)) << "what stands in no heap goes into none";
  EXPECT_TRUE(order.CheckInvariants().ok());
}

class ScanGuardTest : public testing::Test {
 protected:
  // A request of the document; whether it is cold then.
  bool Read(size_t document) {
    if (subjects_.size() <= document) subjects_.resize(document + 1);
    const bool is_new = subjects_[document].birth == 0;
    const bool cold = guard_.Note(&subjects_[document], is_new ? 10'000'000 : 0, is_new ? 0 : 1000);
    EXPECT_TRUE(guard_.CheckInvariants().ok()) << guard_.CheckInvariants().message();
    return cold;
  }
  ScanGuard guard_{100'000'000};  // ten documents
  std::vector<ScanGuard::Subject> subjects_;
};

TEST_F(ScanGuardTest, WhatFitsIsNoScan) {
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < 8; ++i) Read(i);
  }
  EXPECT_FALSE(guard_.resists());
}

TEST_F(ScanGuardTest, RecencyIsNoScan) {  // each document four times, then never again
  for (size_t i = 0; i < 500; ++i) {
    for (size_t back = 0; back < 4 && 2 * back <= i; ++back) Read(i - 2 * back);
    ASSERT_FALSE(guard_.resists()) << i;
  }
}

TEST_F(ScanGuardTest, OfALoopAPartIsWarm) {
  for (int round = 0; round < 6; ++round) {
    int warm = 0;
    for (size_t i = 0; i < 30; ++i) warm += Read(i) ? 0 : 1;
    EXPECT_EQ(warm, round == 0 ? 0 : 9) << "nine tenths";
    EXPECT_EQ(guard_.resists(), round > 0);
  }
  for (int round = 0; round < 120; ++round) {  // the traffic changes: the old ones cool down
    for (size_t i = 100; i < 105; ++i) Read(i);
  }
  EXPECT_FALSE(Read(100));
  EXPECT_FALSE(guard_.resists());
}

TEST_F(ScanGuardTest, DocumentsThatAreReadOnceAreCold) {
  size_t next = 1000;
  for (int round = 0; round < 8; ++round) {
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(Read(i), round == 0) << "conversations come back";
      for (int j = 0; j < 4; ++j) EXPECT_TRUE(Read(next++));
    }
  }
  EXPECT_TRUE(guard_.resists());
}

TEST_F(ScanGuardTest, SubjectsAreBounded) {
  for (size_t i = 0; i < 5000; ++i) Read(i);
  EXPECT_LT(guard_.bytes(), 50'000u);
  EXPECT_TRUE(Read(0)) << "forgotten, and thus new";
}

EntryFacts Facts(SnapshotReason reason, double cost = 1000, double bytes = 1000) {
  EntryFacts facts;
  facts.is_snapshot = true;
  facts.reason = reason;
  facts.cost = cost;
  facts.bytes = bytes;
  return facts;
}

TEST(CostPerByte, OrderOfThings) {
  const CostPerBytePolicy policy(60'000);
  const auto key = [&](const EntryFacts& facts) { return policy.Key(facts); };
  EXPECT_GT(key(Facts(SnapshotReason::kPromptEnd, 2000)), key(Facts(SnapshotReason::kPromptEnd)));
  EXPECT_LT(key(Facts(SnapshotReason::kPromptEnd, 1000, 2000)),
            key(Facts(SnapshotReason::kPromptEnd)));
  EXPECT_GT(key(Facts(SnapshotReason::kSystem)), key(Facts(SnapshotReason::kMessage)));
  EntryFacts passed = Facts(SnapshotReason::kPromptEnd);
  passed.superseded = true;
  EXPECT_GT(key(Facts(SnapshotReason::kSystem)), key(passed)) << "the system prompt survives";
  EntryFacts used = Facts(SnapshotReason::kMessage);
  used.used_ms = 600'000;
  EXPECT_GT(key(used), key(Facts(SnapshotReason::kPromptEnd))) << "ten half-lives later";
}

TEST(CostPerByte, LearnsHowLongConversationsPauseAndWhichGoOn) {
  CostPerBytePolicy policy;
  int refreshes = 0;
  for (int i = 0; i < 2000; ++i) {
    const int64_t now_ms = 1000 * int64_t{i};
    policy.NoteEnd({EndKind::kPromptEnd, 0, 0, now_ms});
    policy.NoteEnd({EndKind::kReplyEnd, 0, 0, now_ms});
    if (i % 2 == 0) refreshes += policy.NoteReuse({EndKind::kPromptEnd, 0, 0, now_ms}, 20'000);
  }
  EXPECT_NEAR(policy.half_life_ms(), 20'000, 6'000);
  EXPECT_NEAR(policy.share(EndKind::kPromptEnd, 0), 0.5, 0.1);
  EXPECT_LT(policy.share(EndKind::kReplyEnd, 0), 0.2) << "nobody went on behind the replies";
  EXPECT_EQ(policy.share(EndKind::kReplyEnd, 3), policy.share(EndKind::kReplyEnd, 0))
      << "not seen: as the turns before";
  EXPECT_LT(refreshes, 30) << "keys are computed anew only when much has changed";
}

// Sixty conversations go on after 144 s. Before that it is not known that their second ends will:
// these must not count as ends that nobody continues.
TEST(CostPerByte, WhatCannotHaveGoneOnYetIsNotCounted) {
  CostPerBytePolicy policy;
  for (int i = 0; i < 60; ++i) policy.NoteEnd({EndKind::kPromptEnd, 0, 0, i});
  for (int i = 0; i < 60; ++i) {
    policy.NoteReuse({EndKind::kPromptEnd, 0, 0, 144'000 + i}, 144'000);
    policy.NoteEnd({EndKind::kPromptEnd, 1, 0, 144'000 + i});
  }
  EXPECT_GT(policy.share(EndKind::kPromptEnd, 0), 0.8);
  EXPECT_GT(policy.share(EndKind::kPromptEnd, 1), 0.8);
  for (int i = 0; i < 60; ++i) policy.NoteEnd({EndKind::kPromptEnd, 0, 0, 400'000 + i});
  policy.NoteReuse({EndKind::kPromptEnd, 1, 0, 544'000}, 400'000);
  EXPECT_LT(policy.share(EndKind::kPromptEnd, 1), 0.2) << "now it is known";
}

// Without snapshots little is known of an end but its age: that decides, as long as conversations
// are about as likely to go on at any turn.
TEST(CostPerByte, ShortTailsGoByAgeAlone) {
  CostPerBytePolicy policy;
  EntryFacts facts{.cost = 1, .bytes = 1, .used_ms = 12'345, .end = EndKind::kTail};
  for (int i = 0; i < 1000; ++i) {
    for (uint32_t turns = 0; turns < 2; ++turns) policy.NoteEnd({EndKind::kTail, turns});
    if (i % 10 < 3) policy.NoteReuse({EndKind::kTail, 0}, 20'000);
    if (i % 10 < 5) policy.NoteReuse({EndKind::kTail, 1}, 20'000);
  }
  EXPECT_LT(policy.share(EndKind::kTail, 0), 0.4);
  EXPECT_GT(policy.share(EndKind::kTail, 1), 0.4);
  for (uint32_t turns = 0; turns < 20; ++turns) {
    facts.turns = turns;
    EXPECT_EQ(policy.Key(facts), 12'345) << turns;
  }
}

// Two questions, then never again: the first ends of conversations outlive the second ones.
TEST(CostPerByte, TailsThatNobodyGoesOnBehindGoFirst) {
  CostPerBytePolicy policy;
  EntryFacts facts{.cost = 1, .bytes = 1, .used_ms = 0, .end = EndKind::kTail};
  for (int i = 0; i < 1000; ++i) {
    policy.NoteEnd({EndKind::kTail, 0});
    policy.NoteEnd({EndKind::kTail, 1});
    policy.NoteReuse({EndKind::kTail, 0}, 20'000);
  }
  EXPECT_EQ(policy.Key(facts), 0);
  facts.turns = 1;
  EXPECT_LT(policy.Key(facts), -2 * policy.half_life_ms());
  facts.used_ms = 10 * 3'600'000;
  EXPECT_GT(policy.Key(facts), 0) << "but not for ever";
}

TEST(CostPerByte, SnapshotsBehindMuchTextGoEarlier) {
  const CostPerBytePolicy policy(60'000);
  EntryFacts little = Facts(SnapshotReason::kPromptEnd), much = little;
  little.end = much.end = EndKind::kPromptEnd;
  much.bulk_tokens = 60'000;
  EXPECT_LT(policy.Key(much), policy.Key(little) - 30'000);
}

// Of ends that are as old, those whose request brought much text go first, the more so the less
// often such ends are continued; where they are continued more often, age alone decides.
TEST(CostPerByte, BulkyTailsGoEarlierUnlessTheyGoOn) {
  const auto earlier = [](int continued_long, int continued_short) {
    CostPerBytePolicy policy(60'000);
    for (int i = 0; i < 2000; ++i) {
      const bool is_long = i % 2 == 0;
      const EndFacts end{EndKind::kTail, 0, is_long ? 60'000 : 2'000};
      policy.NoteEnd(end);
      if (i / 2 % 10 < (is_long ? continued_long : continued_short)) policy.NoteReuse(end, 20'000);
    }
    EntryFacts shallow{.cost = 1, .bytes = 1, .used_ms = 0, .end = EndKind::kTail};
    shallow.bulk_tokens = 2'000;
    EntryFacts deep = shallow;
    deep.bulk_tokens = 60'000;
    return policy.Key(shallow) - policy.Key(deep);
  };
  EXPECT_GT(earlier(3, 3), 60'000 / 4) << "as expected";
  EXPECT_GT(earlier(1, 3), earlier(3, 3));
  EXPECT_LT(earlier(1, 3), 4 * 60'000) << "but not for ever";
  EXPECT_LT(earlier(8, 2), 60'000 / 10) << "keys follow in steps";
}

}  // namespace
}  // namespace reprise
