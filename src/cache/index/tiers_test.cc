// SPDX-License-Identifier: Apache-2.0
// State that moves between memory and a lower tier, on ids alone: what is known without being
// there, who waits for what, and who holds which memory meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

using Kind = Move::Kind;

// A tier that does what the test says, when it says so.
class ToldTier : public Tier {
 public:
  std::string_view name() const override { return "told"; }
  void Open(const StateMemory&, DeviceMemory&) override {}
  void AddRoots(const NamespaceKey&, std::vector<PathId>* added) const override {
    for (uint8_t i = 1; i <= roots; ++i) added->emplace_back().bytes[0] = i;
  }
  void Find(const NamespaceKey& key, const PromptPaths& paths, const Found& found) override {
    const std::span<const TokenId> prompt = paths.tokens();
    ++finds;
    whole = whole && paths.In({{9}}) == nullptr;
    for (uint8_t i = 1; i <= roots; ++i) {
      const PromptPath right({{i}}, prompt);
      const PromptPath* path = paths.In({{i}});
      whole = whole && path != nullptr && path->At(path->size()) == right.At(right.size());
    }
    TierRecordId parent;
    int32_t above = 0;
    for (const int32_t position : kept) {
      const auto head = std::span(kept_prompt).first(static_cast<size_t>(position));
      if (key.salt != "tenant" || prompt.size() < head.size()) return;
      if (!std::equal(head.begin(), head.end(), prompt.begin())) return;
      parent = found({.parent = parent, .first_block = above / kBlockTokens, .position = position});
      above = position;
      found_ids.push_back(parent);
    }
  }
  uint64_t Ask(const NamespaceKey&, std::span<const TokenId>) override {
    return asks ? ++questions : 0;
  }
  bool shared() const override { return others; }
  void Begin(const Move&) override {}
  void Cancel(uint64_t move) override { cancelled.insert(move); }
  void Remove(TierRecordId record) override { removed.insert(record); }
  void Reset(const NamespaceKey*) override {}
  News Poll(When) override { return {}; }

  uint8_t roots = 0;    // namespaces by which it names prompts,
  bool whole = true;    // and it was given all of every path
  bool others = false;  // read it, too
  bool asks = false;    // and write to it
  uint64_t questions = 0;
  uint64_t finds = 0;
  std::vector<TokenId> kept_prompt;  // of an earlier life,
  std::vector<int32_t> kept;         // with records at these positions
  std::vector<TierRecordId> found_ids;
  std::set<uint64_t> cancelled;
  std::set<TierRecordId> removed;
};

// Full K/V, window, recurrent.
class TiersTest : public testing::TestWithParam<std::tuple<bool, int, bool>> {
 protected:
  TiersTest() : client_(OptionsFor(16 << 20)), prompt_(RandomTokens(1, 1000)) {
    client_.index.SetTier(&tier_);
  }
  ~TiersTest() override { client_.index.CancelMoves(); }

  static StateIndex::Options OptionsFor(size_t budget) {
    const auto [full, window, recurrent] = GetParam();
    StateIndex::Options options;
    options.spec = SpecOfKinds(full, window, recurrent);
    options.cache.budget_bytes = budget;
    options.cache.sequence_count = 64;
    return options;
  }
  static bool recurrent() { return std::get<2>(GetParam()); }
  static int window() { return std::get<1>(GetParam()); }
  static bool has_kv() { return std::get<0>(GetParam()) || window() > 0; }
  // Who goes on needs nothing but the last record.
  static bool alone() { return !std::get<0>(GetParam()); }

  // All moves that were decided on.
  std::vector<Move> Moves() {
    client_.index.actions().clear();
    return client_.index.TakeMoves();
  }
  void Done(const Move& move, bool ok = true, int64_t ns = 1000) {
    client_.index.Hear({.done = {{.id = move.id, .ok = ok, .bytes = 1 << 20, .ns = ns}},
                        .lost = {},
                        .answered = {}});
    EXPECT_EQ(client_.index.CheckInvariants().message(), "");
  }
  void AwaitAnswers() {
    do {
      std::this_thread::yield();
      client_.index.Hear({});
    } while (client_.index.moves_under_way() > 0);
  }
  // The prompt is computed and stored, and spilled as far as idle time does it.
  void StoreAndSpill() {
    stored_ = client_.Run(prompt_).stored_tokens;
    client_.index.Maintain();
    std::vector<Move> moves = Moves();
    ASSERT_EQ(moves.size(), 1u);
    ASSERT_EQ(moves[0].kind, Kind::kSpill);
    Done(moves[0]);
    record_ = moves[0].records[0];
    ASSERT_EQ(record_.position, stored_);
  }
  // Everything in memory goes; what is below stays.
  void EvictAll() {
    for (uint64_t other = 0; client_.Reusable(prompt_) > 0 && other < 200; ++other) {
      client_.index.SetTime(now_ += 100'000);
      client_.Run(RandomTokens(1000 + other, 3000));
    }
  }
  // The prompt is below, and nothing is in memory or on its way.
  void StoreOnlyBelow() {
    StoreAndSpill();
    EvictAll();
    client_.index.CancelMoves();
    Moves();
  }
  std::optional<Residency> Where() {
    return client_.index.ResidencyOf(client_.key, std::span(prompt_).first(stored_));
  }
  std::vector<TokenId> NextTurn() const {
    std::vector<TokenId> next = prompt_;
    const auto more = RandomTokens(2, 100);
    next.insert(next.end(), more.begin(), more.end());
    return next;
  }

  ToldTier tier_;
  IndexClient client_;
  std::vector<TokenId> prompt_;
  RecordHead record_;
  size_t stored_ = 0;
  int64_t now_ = 0;
};

TEST_P(TiersTest, AnEntryIsKnownWhereverItIs) {
  stored_ = static_cast<size_t>(client_.Run(prompt_).stored_tokens);
  EXPECT_EQ(Where(), Residency::kResident);
  client_.index.Maintain();
  const std::vector<Move> spill = Moves();
  ASSERT_EQ(spill.size(), 1u);
  EXPECT_EQ(spill[0].tokens.size(), stored_);
  EXPECT_EQ(spill[0].key->salt, "tenant");
  EXPECT_EQ(spill[0].state.valid(), recurrent());
  EXPECT_EQ(Where(), Residency::kSpilling);
  Done(spill[0]);
  EXPECT_EQ(Where(), Residency::kResident);
  EvictAll();
  EXPECT_EQ(Where(), Residency::kSpilled);
  Moves();
  client_.index.CancelMoves();

  const std::vector<TokenId> next = NextTurn();
  Lease lease = client_.Acquire(next);
  const StartAnswer answer = client_.index.Start(lease);
  EXPECT_TRUE(answer.pending());
  EXPECT_EQ(answer.awaited.position, static_cast<int32_t>(stored_));
  EXPECT_EQ(Where(), Residency::kFetching);
  EXPECT_TRUE(client_.index.FindAwaited(lease));
  const std::vector<Move> fetch = Moves();
  ASSERT_EQ(fetch.size(), 1u);
  EXPECT_EQ(fetch[0].kind, Kind::kFetch);
  EXPECT_EQ(fetch[0].state.valid(), recurrent());
  Done(fetch[0], true, 5000);
  EXPECT_EQ(Where(), Residency::kResident);
  EXPECT_FALSE(client_.index.FindAwaited(lease));
  EXPECT_TRUE(client_.index.Start(lease).ready());
  const ReuseReport& report = client_.index.record(lease).report;
  EXPECT_EQ(report.used_tokens, static_cast<int32_t>(stored_));
  EXPECT_GT(report.loaded_tokens, 900);
  EXPECT_EQ(report.load_ns, 5000);
}

TEST_P(TiersTest, ALoadIsAwaitedByAllWhoWantIt) {
  StoreOnlyBelow();
  const std::vector<TokenId> next = NextTurn();
  Lease first = client_.Acquire(next), second = client_.Acquire(next);
  EXPECT_TRUE(client_.index.FindAwaited(first)) << "asked for while it waits in the queue";
  const auto awaited = client_.index.FindAwaited(second);
  ASSERT_TRUE(awaited);
  EXPECT_EQ(awaited->lease_id, client_.index.FindAwaited(first)->lease_id);
  const std::vector<Move> fetch = Moves();
  ASSERT_EQ(fetch.size(), 1u) << "it is read once";
  Done(fetch[0]);
  EXPECT_TRUE(client_.index.Start(first).ready());
  EXPECT_TRUE(client_.index.Start(second).ready());
  EXPECT_EQ(client_.index.record(second).report.used_tokens, static_cast<int32_t>(stored_));
}

TEST_P(TiersTest, WhatIsInMemoryIsNotSoughtBelow) {
  StoreAndSpill();
  tier_.finds = 0;
  tier_.asks = true;
  std::vector<TokenId> again = prompt_;
  again.resize(stored_ + 10);
  for (int i = 0; i < 3; ++i) client_.Run(again);
  EXPECT_EQ(tier_.finds, 0u);
  EXPECT_EQ(tier_.questions, 0u);
  EXPECT_EQ(client_.index.moves_under_way(), 0u);
}

// A conversation of many turns has a record for each. What a request looks at does not grow with
// the square of them, nor, once the state is in memory, with their number.
TEST_P(TiersTest, RecordsAreNotWalkedAgainAndAgain) {
  constexpr int kTurns = 400;
  constexpr int32_t kTurnTokens = 8;
  tier_.kept_prompt = RandomTokens(3, kTurns * kTurnTokens);
  for (int i = 1; i <= kTurns; ++i) tier_.kept.push_back(i * kTurnTokens);
  const uint64_t before = client_.index.record_looks();
  Lease lease = client_.Acquire(tier_.kept_prompt);
  ASSERT_EQ(client_.index.stats().records, size_t{kTurns});
  EXPECT_LE(client_.index.record_looks() - before, uint64_t{4 * kTurns});
  ASSERT_TRUE(client_.index.FindAwaited(lease));
  Done(Moves().at(0));
  ASSERT_TRUE(client_.index.Start(lease).ready());
  EXPECT_LE(client_.index.record_looks() - before, uint64_t{8 * kTurns});

  const uint64_t loaded = client_.index.record_looks();
  std::vector<TokenId> again = tier_.kept_prompt;
  again.resize(again.size() + 10);
  EXPECT_EQ(client_.Run(again).used_tokens, (kTurns - 1) * kTurnTokens);
  EXPECT_LE(client_.index.record_looks() - loaded, 100u) << "all of it is in memory";
}

// The ids of 20,000 tokens take half a millisecond for each name of a namespace. Beside those that
// run another thread computes them, but for a few in a step.
TEST_P(TiersTest, PathsOfLongPromptsAreComputedBesideThoseThatRun) {
  tier_.roots = 2;
  tier_.kept_prompt = RandomTokens(3, 20'000);
  tier_.kept = {19'000};
  const auto blocks = [&] { return client_.index.path_blocks(); };
  {
    const Lease alone = client_.Acquire(RandomTokens(4, 20'000));
    EXPECT_EQ(tier_.finds, 1u) << "nobody else waits";
  }
  Lease runs = client_.Acquire(prompt_);
  ASSERT_TRUE(client_.index.Start(runs).ready());
  EXPECT_EQ(tier_.finds, 2u);
  EXPECT_EQ(blocks(), 0u);

  client_.index.Hear({});  // a step begins
  const Lease brief = client_.Acquire(RandomTokens(5, 500));
  EXPECT_EQ(tier_.finds, 3u);
  EXPECT_EQ(blocks(), 14u);
  const Lease another = client_.Acquire(RandomTokens(6, 500));
  EXPECT_EQ(tier_.finds, 3u) << "more than a step has time for";
  AwaitAnswers();
  EXPECT_EQ(tier_.finds, 4u);

  Lease lengthy = client_.Acquire(tier_.kept_prompt);
  EXPECT_EQ(tier_.finds, 4u);
  EXPECT_TRUE(client_.index.FindAwaited(lengthy));
  EXPECT_EQ(client_.index.moves_under_way(), 1u);
  AwaitAnswers();
  EXPECT_EQ(tier_.finds, 5u);
  EXPECT_EQ(client_.index.stats().records, 1u);
  EXPECT_EQ(blocks(), 14u);

  { const Lease leaves = client_.Acquire(RandomTokens(7, 200'000)); }
  EXPECT_EQ(client_.index.moves_under_way(), 0u);
  client_.index.Hear({});
  EXPECT_EQ(tier_.finds, 5u);
  EXPECT_TRUE(tier_.whole);
}

// One thread has the paths of all prompts: long ones let others pass.
TEST_P(TiersTest, APathDoesNotWaitForAllOfTheLongOnesBeforeIt) {
  tier_.roots = 1;
  Lease runs = client_.Acquire(prompt_);
  ASSERT_TRUE(client_.index.Start(runs).ready());
  bool passed = false;
  for (uint64_t i = 0; i < 20 && !passed; ++i) {  // once is enough: the thread may be fast
    const Lease lengthy = client_.Acquire(RandomTokens(10 + i, 1'000'000));
    const Lease brief = client_.Acquire(RandomTokens(50 + i, 2000));
    while (client_.index.FindAwaited(lengthy) && client_.index.FindAwaited(brief)) {
      std::this_thread::yield();
      client_.index.Hear({});
    }
    passed = client_.index.FindAwaited(lengthy).has_value();
  }
  EXPECT_TRUE(passed);
}

// State that a tier has as well is cheaper to lose, so it goes before older state that it lacks.
TEST_P(TiersTest, StateWithARecordIsEvictedFirst) {
  const std::vector<TokenId> older = RandomTokens(5, 1000);
  client_.index.SetTime(now_ += 1000);
  client_.Run(older);
  client_.index.SetTime(now_ += 1000);
  stored_ = client_.Run(prompt_).stored_tokens;
  client_.index.Maintain();
  const std::vector<Move> moves = Moves();
  ASSERT_EQ(moves.size(), 2u);
  for (const Move& move : moves) Done(move, /*ok=*/move.tokens[0] == prompt_[0]);
  client_.index.SetTime(now_ += 1000);
  const int32_t before = client_.Reusable(prompt_);
  ASSERT_GT(before, 900);
  ASSERT_EQ(client_.Reusable(older), before);
  for (uint64_t other = 0; client_.Reusable(prompt_) == before && other < 200; ++other) {
    ASSERT_EQ(client_.Reusable(older), before) << "the tier has no copy of it";
    client_.Run(RandomTokens(1000 + other, 100));
    client_.index.CancelMoves();
    Moves();
  }
  EXPECT_LT(client_.Reusable(prompt_), before);
  EXPECT_EQ(client_.Reusable(older), before);
}

TEST_P(TiersTest, WhatFailsIsAMiss) {
  StoreOnlyBelow();
  Lease lease = client_.Acquire(NextTurn());
  ASSERT_TRUE(client_.index.Start(lease).pending());
  Done(Moves().at(0), /*ok=*/false);
  EXPECT_TRUE(tier_.removed.contains(record_.id));
  EXPECT_TRUE(client_.index.Start(lease).ready()) << "computed after all";
  EXPECT_LT(client_.index.record(lease).report.used_tokens, static_cast<int32_t>(stored_));
  EXPECT_EQ(Where(), std::nullopt);
}

TEST_P(TiersTest, WhatIsLostOrResetIsForgotten) {
  StoreAndSpill();
  client_.index.Hear({.done = {}, .lost = {record_.id}, .answered = {}});
  EXPECT_EQ(client_.index.stats().records, 0u);
  EXPECT_EQ(Where(), Residency::kResident);

  prompt_ = RandomTokens(7, 700);
  StoreAndSpill();
  client_.index.Reset(&client_.key);
  EXPECT_TRUE(tier_.removed.contains(record_.id));
  EXPECT_EQ(Where(), std::nullopt);
  EXPECT_EQ(client_.index.stats().namespaces, 0u);
}

TEST_P(TiersTest, AResetEndsWhatIsUnderWay) {
  stored_ = static_cast<size_t>(client_.Run(prompt_).stored_tokens);
  client_.index.Maintain();
  const std::vector<Move> spill = Moves();
  ASSERT_EQ(spill.size(), 1u);
  client_.index.Reset(&client_.key);
  EXPECT_TRUE(tier_.cancelled.contains(spill[0].id));
  EXPECT_EQ(client_.index.moves_under_way(), 0u);
  EXPECT_EQ(client_.index.stats().namespaces, 0u);
  EXPECT_EQ(client_.index.CheckInvariants().message(), "");
}

// A spill that never ends must not keep a request that runs alone from its memory.
TEST_P(TiersTest, RunningRequestsTakeTheMemoryOfMoves) {
  IndexClient small(OptionsFor(4 << 20));
  ToldTier tier;
  small.index.SetTier(&tier);
  const auto held = RandomTokens(3, has_kv() ? 2500 : 100);
  small.Run(held);
  small.index.Maintain();
  const std::vector<Move> moves = small.index.TakeMoves();
  ASSERT_EQ(moves.size(), 1u);
  // Of recurrent state alone, one at a time fills the memory with sequences.
  std::vector<Lease> leases;
  for (int i = 0; i < 40 && tier.cancelled.empty(); ++i) {
    leases.push_back(small.Acquire(RandomTokens(50 + static_cast<uint64_t>(i), 2500)));
    if (!small.index.Start(leases.back()).ready() || !small.Compute(leases.back()).ok()) break;
  }
  EXPECT_TRUE(tier.cancelled.contains(moves[0].id));
  EXPECT_EQ(small.index.CheckInvariants().message(), "");
}

TEST_P(TiersTest, LoadingMustBeSooner) {
  StoreOnlyBelow();
  // A load that took a second for 1 MiB, steps that took a microsecond.
  Lease slow = client_.Acquire(NextTurn());
  ASSERT_TRUE(client_.index.Start(slow).pending());
  Done(Moves().at(0), true, 1'000'000'000);
  slow = Lease();
  Lease fast = client_.Acquire(RandomTokens(77, 500));
  ASSERT_TRUE(client_.index.Start(fast).ready());
  ASSERT_TRUE(client_.index.Reserve(fast, 500).ok());
  ASSERT_TRUE(client_.index.Commit(fast, {.token_count = 500, .ns = 1000}).ok());
  fast = Lease();
  EvictAll();
  client_.index.CancelMoves();
  Moves();
  ASSERT_EQ(Where(), Residency::kSpilled);
  Lease lease = client_.Acquire(NextTurn());
  EXPECT_TRUE(client_.index.Start(lease).ready());
  EXPECT_EQ(client_.index.record(lease).report.reason, MissReason::kCheaper);
}

TEST_P(TiersTest, AConversationIsWrittenPieceByPiece) {
  StoreAndSpill();
  std::vector<TokenId> next = NextTurn();
  client_.Run(next);
  client_.index.Maintain();
  const std::vector<Move> moves = Moves();
  ASSERT_EQ(moves.size(), 1u);
  const RecordHead& head = moves[0].records[0];
  if (!has_kv()) GTEST_SKIP() << "no K/V";
  EXPECT_EQ(head.parent, record_.id);
  EXPECT_EQ(head.first_block, record_.position / kBlockTokens);
  EXPECT_LE(moves[0].blocks.size(), 4u);
}

TEST_P(TiersTest, APromptFindsWhatWasWrittenInAnEarlierLife) {
  tier_.kept_prompt = prompt_;
  tier_.kept = {640, 1000};
  stored_ = prompt_.size();
  Lease lease = client_.Acquire(NextTurn());
  EXPECT_EQ(client_.index.stats().records, 2u);
  EXPECT_EQ(Where(), Residency::kSpilled);
  ASSERT_TRUE(client_.index.Start(lease).pending());
  const std::vector<Move> fetch = Moves();
  ASSERT_EQ(fetch.size(), 1u);
  EXPECT_EQ(fetch[0].records.size(), alone() ? 1u : 2u);
  EXPECT_EQ(fetch[0].records.back().id, tier_.found_ids.back());
  Done(fetch[0]);
  ASSERT_TRUE(client_.index.Start(lease).ready());
  EXPECT_EQ(client_.index.record(lease).report.used_tokens, 1000);

  NamespaceKey other{"model", "someone else"};
  CacheRequest request;
  request.key = &other;
  EXPECT_EQ(client_.Reusable(prompt_, request), 0);
}

TEST_P(TiersTest, WhoHasAskedWaitsForTheAnswer) {
  tier_.asks = true;
  Lease lease = client_.Acquire(NextTurn());
  EXPECT_EQ(client_.index.moves_under_way(), 1u) << "somebody has to listen";
  EXPECT_TRUE(client_.index.FindAwaited(lease));
  EXPECT_TRUE(client_.index.Start(lease).pending());
  tier_.kept_prompt = prompt_;  // another server has stored it
  tier_.kept = {640, 1000};
  client_.index.Hear({.done = {}, .lost = {}, .answered = {tier_.questions}});
  EXPECT_EQ(client_.index.moves_under_way(), 0u);
  ASSERT_TRUE(client_.index.FindAwaited(lease)) << "now for the state itself";
  const std::vector<Move> fetch = Moves();
  ASSERT_EQ(fetch.size(), 1u);
  Done(fetch[0]);
  ASSERT_TRUE(client_.index.Start(lease).ready());
  EXPECT_EQ(client_.index.record(lease).report.used_tokens, 1000);
  EXPECT_EQ(client_.index.record(lease).report.load_tier, "told");
}

TEST_P(TiersTest, WhatOthersMayWantGoesDownWithoutIdleTime) {
  client_.Run(prompt_);
  client_.index.SetTime(++now_);
  EXPECT_TRUE(Moves().empty()) << "it has time";
  tier_.others = true;
  client_.Run(RandomTokens(5, 700));
  client_.index.SetTime(++now_);
  EXPECT_FALSE(Moves().empty());
}

TEST_P(TiersTest, AnAnswerWithoutStateLetsGo) {
  tier_.asks = true;
  Lease lease = client_.Acquire(prompt_);
  EXPECT_TRUE(client_.index.Start(lease).pending());
  client_.index.Hear({.done = {}, .lost = {}, .answered = {tier_.questions}});
  EXPECT_TRUE(client_.index.Start(lease).ready());
}

TEST_P(TiersTest, WhoNeedsNoAnswerDoesNotWait) {
  client_.Run(prompt_);
  tier_.asks = true;
  {
    Lease known = client_.Acquire(prompt_);
    EXPECT_FALSE(client_.index.FindAwaited(known)) << "all of it is in memory";
    EXPECT_TRUE(client_.index.Start(known).ready());
    CacheRequest idle;
    idle.idle = true;
    const Lease other = client_.Acquire(RandomTokens(9, 500), idle);
    EXPECT_FALSE(client_.index.FindAwaited(other)) << "idle work waits for nobody";
    const Lease leaves = client_.Acquire(RandomTokens(8, 500));
    EXPECT_EQ(client_.index.moves_under_way(), 1u) << "what is in memory is not asked for";
  }
  EXPECT_EQ(client_.index.moves_under_way(), 0u) << "nobody listens any more";
  client_.index.Hear({.done = {}, .lost = {}, .answered = {1, 2}});
  EXPECT_TRUE(client_.index.CheckInvariants().ok());
}

TEST_P(TiersTest, RecordsAreBounded) {
  for (uint64_t i = 0; i < 120; ++i) {
    client_.Run(RandomTokens(i, 3000));
    for (client_.index.Maintain(); client_.index.moves_under_way() > 0; client_.index.Maintain()) {
      for (const Move& move : Moves()) Done(move);
    }
  }
  EXPECT_LE(client_.index.stats().records * 3000 * sizeof(TokenId), size_t{16 << 20} / 8);
  EXPECT_FALSE(tier_.removed.empty());
}

// What was loaded is the last window. Should the record be lost, that much can still be stored, and
// gone on from.
TEST_P(TiersTest, AWindowIsStoredWithoutWhatLiesBefore) {
  if (window() == 0) GTEST_SKIP() << "no window";
  StoreOnlyBelow();
  Lease lease = client_.Acquire(NextTurn());
  ASSERT_TRUE(client_.index.Start(lease).pending());
  const std::vector<Move> fetch = Moves();
  ASSERT_EQ(fetch.size(), 1u);
  const int32_t needed = (record_.position - window() + 1) / kBlockTokens;
  EXPECT_EQ(fetch[0].first_block, needed);
  EXPECT_LE(fetch[0].blocks.size(), static_cast<size_t>(window() / kBlockTokens) + 2);
  Done(fetch[0]);
  ASSERT_TRUE(client_.index.Start(lease).ready());
  client_.index.Hear({.done = {}, .lost = {record_.id}, .answered = {}});
  ASSERT_TRUE(client_.Compute(lease).ok());
  const ReuseReport report = client_.index.Finish(std::move(lease));
  EXPECT_EQ(report.used_tokens, record_.position);
  std::optional<Move> spill;
  for (int i = 0; i < 200 && !spill; ++i) {  // others go down, too
    client_.index.Maintain();
    for (const Move& move : Moves()) {
      move.records[0].position == report.stored_tokens ? void(spill = move) : Done(move);
    }
  }
  ASSERT_TRUE(spill);
  const RecordHead& head = spill->records[0];
  EXPECT_FALSE(head.parent.valid());
  EXPECT_EQ(head.first_block, (head.position - window() + 1) / kBlockTokens);
  EXPECT_EQ(spill->first_block, head.first_block);
  Done(*spill);
}

// A prompt that was loaded is computed again from its beginning: what was a gap is none any more.
TEST_P(TiersTest, AGapIsFilled) {
  if (window() == 0 || recurrent()) GTEST_SKIP() << "a state cannot be cut, or there is no window";
  StoreOnlyBelow();
  Lease lease = client_.Acquire(NextTurn());
  ASSERT_TRUE(client_.index.Start(lease).pending());
  Done(Moves().at(0));
  ASSERT_TRUE(client_.index.Start(lease).ready());
  lease = Lease();
  std::vector<TokenId> half(prompt_.begin(), prompt_.begin() + 500);
  EXPECT_EQ(client_.Reusable(half), 0);
  half.push_back(1);
  client_.Run(half);
  EXPECT_EQ(client_.Reusable(half), 500);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TiersTest,
                         testing::Values(std::tuple(true, 0, false), std::tuple(false, 0, true),
                                         std::tuple(true, 0, true), std::tuple(false, 150, false),
                                         std::tuple(false, 150, true)));

}  // namespace
}  // namespace reprise
