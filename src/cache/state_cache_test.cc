// SPDX-License-Identifier: Apache-2.0
// Proves that the facade moves real bytes as the index decides: a toy model whose state is a
// running sum reads back, after any reuse, what a cold run would have; budgets are refused with
// their numbers, kept under load, and states that are not finite are never stored.
#include "cache/state_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "cache/index/state_index.h"
#include "device/raw.h"
#include "device/scarce_memory.h"

namespace reprise {
namespace {

StateSpec HybridSpec() {
  StateSpec spec;
  spec.token_cost = 1000;
  spec.layers.push_back({0, StateKind::kFullKv, 0, {{"k", {2, 16}, DType::kF32}}});
  spec.layers.push_back({1, StateKind::kRecurrent, 0, {{"s", {1024}, DType::kF32}}});
  return spec;
}

// The state after tokens t0..tn is the fold x -> x * 0.5 + t; a K row holds it at its position.
class Toy {
 public:
  explicit Toy(CacheOptions options, DeviceMemory& memory = HostMemory()) {
    options.budget_bytes = options.budget_bytes ? options.budget_bytes : 8 << 20;
    auto made = StateCache::Create(HybridSpec(), options, memory);
    CHECK(made.ok());
    cache = std::move(made).value();
  }

  // folds[n] is the state after n tokens.
  static std::vector<float> Folds(std::span<const TokenId> tokens) {
    std::vector<float> folds = {0};
    for (const TokenId t : tokens) folds.push_back(folds.back() * 0.5f + static_cast<float>(t));
    return folds;
  }

  float* Row(const Lease& lease, int32_t p) const {
    const StateMemory& memory = cache->memory();
    auto* block = Raw(memory.block(lease.blocks()[p / kBlockTokens]).As<float>());
    return block + (p % kBlockTokens) * 16;  // head 0
  }
  float* State(const Lease& lease) const {
    return Raw(cache->memory().state(lease.state()).As<float>());
  }

  Lease Acquire(std::span<const TokenId> tokens, std::span<const Boundary> boundaries = {}) {
    CacheRequest request;
    request.key = &key;
    request.tokens = tokens;
    request.boundaries = boundaries;
    return cache->Acquire(request);
  }

  // Computes what is left, in steps; everything read back must be right.
  Status Run(Lease& lease, bool finite = true) {
    if (!lease.started()) REPRISE_TRY(cache->Start(lease).status);
    const std::vector<float> folds = Folds(lease.tokens());
    while (lease.computed() < static_cast<int32_t>(lease.tokens().size())) {
      const int32_t begin = lease.computed();
      const int32_t end = std::min(begin + 100, static_cast<int32_t>(lease.tokens().size()));
      REPRISE_TRY(cache->Reserve(lease, end - begin));
      EXPECT_EQ(State(lease)[0], folds[begin]);
      EXPECT_EQ(State(lease)[1023], folds[begin]);
      for (int32_t p = 0; p < begin; ++p) EXPECT_EQ(*Row(lease, p), folds[p + 1]);
      for (int32_t p = begin; p < end; ++p) {
        for (int i = 0; i < 16; ++i) Row(lease, p)[i] = folds[p + 1];
        for (int i = 0; i < 16; ++i) Row(lease, p)[64 * 16 + i] = 1;
      }
      for (const PendingSnapshot& one : lease.pending()) {
        auto* snapshot = Raw(cache->memory().state(one.state).As<float>());
        std::fill_n(snapshot, 1024, folds[one.position]);
      }
      std::fill_n(State(lease), 1024, folds[end]);
      computed += end - begin;
      REPRISE_TRY(cache->Commit(lease, {end - begin, finite}));
    }
    return OkStatus();
  }

  NamespaceKey key{"model", "tenant"};
  std::unique_ptr<StateCache> cache;
  int64_t computed = 0;
};

std::vector<TokenId> Tokens(int count, uint64_t seed = 1) {
  std::vector<TokenId> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(RandomAt(seed, i) % 50);
  return tokens;
}

TEST(StateCache, SecondRunStartsWhereTheFirstLeftOff) {
  Toy toy({});
  auto tokens = Tokens(300);
  Lease first = toy.Acquire(tokens);
  ASSERT_TRUE(toy.Run(first).ok());
  EXPECT_EQ(first.report().reason, MissReason::kCold);
  const TokenId reply[] = {3, 1, 4, 1, 5};
  toy.cache->Append(first, reply);
  ASSERT_TRUE(toy.Run(first).ok());
  toy.cache->Finish(std::move(first));

  tokens.insert(tokens.end(), std::begin(reply), std::end(reply));
  tokens.push_back(9);
  toy.computed = 0;
  Lease second = toy.Acquire(tokens);
  ASSERT_TRUE(toy.Run(second).ok());
  EXPECT_EQ(second.report().used_tokens, 299) << "prompt end, one token left to run";
  EXPECT_EQ(toy.computed, 7);
  EXPECT_TRUE(toy.cache->CheckInvariants().ok());
}

TEST(StateCache, AStateThatIsNotFiniteIsNeverStored) {
  const auto tokens = Tokens(300);
  Toy toy({});
  Lease lease = toy.Acquire(tokens);
  const Status status = toy.Run(lease, /*finite=*/false);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_TRUE(lease.poisoned());
  toy.cache->Finish(std::move(lease));
  EXPECT_EQ(toy.cache->stats().snapshots, 0u);
  Lease next = toy.Acquire(tokens);
  ASSERT_TRUE(toy.Run(next).ok());
  EXPECT_EQ(next.report().used_tokens, 0);
  EXPECT_EQ(toy.computed, 100 + 300);
}

TEST(StateCache, RefusesABudgetThatHoldsNoSequenceWithTheNumbers) {
  CacheOptions options;
  options.budget_bytes = 1 << 20;
  options.context_tokens = 32768;
  const auto made = StateCache::Create(HybridSpec(), options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("1.0 MiB cannot hold one sequence"), std::string::npos);
  EXPECT_NE(made.status().message().find("give it at least"), std::string::npos);
  options.budget_bytes = DefaultBudget(HybridSpec(), 64 << 20, options);
  EXPECT_LE(options.budget_bytes, size_t{48} << 20);
  EXPECT_TRUE(StateCache::Create(HybridSpec(), options).ok());
}

// Where one sequence does not fit into what memory allows, the default does not pretend that it
// does.
TEST(StateCache, DefaultBudgetIsNeverAboveWhatMemoryAllows) {
  CacheOptions options;
  options.context_tokens = 131'072;
  const size_t memory = 6 << 20;
  ASSERT_GT(LeastBudget(HybridSpec(), options), memory);
  options.budget_bytes = DefaultBudget(HybridSpec(), memory, options);
  EXPECT_LE(options.budget_bytes, memory / 4 * 3);
  const auto made = StateCache::Create(HybridSpec(), options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("shorten the context"), std::string::npos);
}

TEST(StateCache, RunningRequestsComeFirstAndMemoryStaysWithinTheBudget) {
  CacheOptions options;
  options.budget_bytes = 2 << 20;
  options.sequence_count = 4;
  Toy toy(options);
  std::vector<Lease> running;
  for (uint64_t i = 0; i < 200; ++i) {
    Lease lease = toy.Acquire(Tokens(100 + static_cast<int>(i * 7 % 900), 1 + i % 23));
    const Status status = toy.Run(lease);
    ASSERT_TRUE(status.ok()) << status.message();
    if (i % 3 != 0)
      toy.cache->Finish(std::move(lease));
    else
      running.push_back(std::move(lease));
    if (running.size() > 2) running.erase(running.begin());
    const CacheStats stats = toy.cache->stats();
    ASSERT_LE(stats.bytes_leased + stats.bytes_cached + stats.bytes_metadata, stats.bytes_budget);
    ASSERT_LE(stats.bytes_used_max, stats.bytes_budget * 103 / 100);
    ASSERT_TRUE(toy.cache->CheckInvariants().ok());
  }
  EXPECT_GT(toy.cache->stats().snapshots_evicted[0] + toy.cache->stats().snapshots_evicted[1], 0u);
  // What is running cannot be taken away: the next request is refused, and only that.
  Lease big = toy.Acquire(Tokens(16000));
  EXPECT_EQ(toy.Run(big).code(), StatusCode::kResourceExhausted);
  big = Lease();
  Lease small = toy.Acquire(Tokens(100));
  EXPECT_TRUE(toy.Run(small).ok());
}

// A device that has less than the budget says so: what is only cached goes first, then the request
// that asked is refused with what the device said, and others go on, with the right bytes.
TEST(StateCache, ADeviceThatHasLessThanTheBudgetEndsOneRequest) {
  ScarceMemory memory(1 << 20);
  CacheOptions options;
  options.budget_bytes = 64 << 20;
  options.sequence_count = 4;
  Toy toy(options, memory);
  const auto compute = [&](Lease& lease) { return toy.Run(lease); };
  for (uint64_t i = 0; i < 60; ++i) {  // together far more than there is
    Lease lease = toy.Acquire(Tokens(100 + static_cast<int>(i * 7 % 900), 1 + i % 23));
    const Status status = compute(lease);
    ASSERT_TRUE(status.ok()) << status.message();
    toy.cache->Finish(std::move(lease));
    ASSERT_TRUE(toy.cache->CheckInvariants().ok());
  }
  EXPECT_GT(toy.cache->stats().memory_refused, 0u);
  EXPECT_LE(memory.most_bytes(), size_t{1} << 20);

  Lease running = toy.Acquire(Tokens(3000, 77));
  ASSERT_TRUE(compute(running).ok());
  Lease big = toy.Acquire(Tokens(6000, 78));
  const Status refused = compute(big);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("the device has no more"), std::string::npos)
      << refused.message();
  EXPECT_EQ(toy.cache->Reserve(big, 6000).code(), StatusCode::kResourceExhausted) << "again";
  big = Lease();
  Lease small = toy.Acquire(Tokens(100, 79));
  EXPECT_TRUE(compute(small).ok());
  toy.cache->Append(running, Tokens(300, 80));
  EXPECT_TRUE(compute(running).ok()) << "nothing of what ran was lost";
  EXPECT_TRUE(toy.cache->CheckInvariants().ok());
}

// Memory for the next step is there before it is reserved, a snapshot's too; what the device or the
// budget has not got is left for later.
TEST(StateCache, MemoryForTheNextStepIsGotAhead) {
  ScarceMemory memory(1 << 20, 4096);
  Toy toy({}, memory);
  const std::vector<Boundary> boundaries = {{250}};
  Lease lease = toy.Acquire(Tokens(400), boundaries);
  ASSERT_TRUE(toy.cache->Start(lease).status.ok());
  const auto step = [&](int32_t count) {
    EXPECT_TRUE(toy.cache->Reserve(lease, count).ok());
    const bool snapshot = !lease.pending().empty();
    EXPECT_TRUE(toy.cache->Commit(lease, {.token_count = count}).ok());
    return snapshot;
  };
  ASSERT_TRUE(toy.cache->Reserve(lease, 100).ok());
  const NextRows next = {&lease, 100, 200};
  const int before = memory.commits();
  toy.cache->BackAhead({&next, 1});
  const int ahead = memory.commits();
  EXPECT_EQ(ahead, before + 2) << "blocks lie side by side, and one state";
  ASSERT_TRUE(toy.cache->Commit(lease, {.token_count = 100}).ok());
  EXPECT_TRUE(step(200)) << "with a snapshot";
  EXPECT_EQ(memory.commits(), ahead);

  memory.set_bytes(memory.committed_bytes());
  const NextRows more = {&lease, 0, 100};
  toy.cache->BackAhead({&more, 1});
  EXPECT_EQ(toy.cache->Reserve(lease, 100).code(), StatusCode::kResourceExhausted);
  memory.set_bytes(1 << 20);
  step(100);
  EXPECT_TRUE(toy.cache->CheckInvariants().ok());
}

// The budget holds with what is got ahead, too.
TEST(StateCache, NothingIsGotAheadBeyondTheBudget) {
  ScarceMemory memory(SIZE_MAX, 4096);
  CacheOptions options;
  options.budget_bytes = 1 << 20;
  options.sequence_count = 2;
  Toy toy(options, memory);
  for (uint64_t seed = 1; seed < 30; ++seed) {
    Lease lease = toy.Acquire(Tokens(600, seed));
    ASSERT_TRUE(toy.cache->Start(lease).status.ok());
    for (int32_t at = 0; at < 600; at += 200) {
      ASSERT_TRUE(toy.cache->Reserve(lease, 200).ok());
      const NextRows next = {&lease, 200, 400 - at};
      if (at < 400) toy.cache->BackAhead({&next, 1});
      ASSERT_TRUE(toy.cache->Commit(lease, {.token_count = 200}).ok());
    }
    toy.cache->Finish(std::move(lease));
    ASSERT_LE(memory.committed_bytes(), options.budget_bytes + (size_t{64} << 10));
  }
  EXPECT_TRUE(toy.cache->CheckInvariants().ok());
}

TEST(StateCache, ThePictureIsLitAlongAPrompt) {
  Toy toy({});
  auto tokens = Tokens(300);
  auto edited = tokens;
  edited[200] = 51;
  for (const auto& prompt : {tokens, edited}) {
    Lease lease = toy.Acquire(prompt);
    ASSERT_TRUE(toy.Run(lease).ok());
    toy.cache->Finish(std::move(lease));
  }
  const auto lit = [&](std::span<const TokenId> prompt) {
    int32_t end = 0;
    for (const TreeNodeView& node : toy.cache->View(toy.key, 100, prompt)) {
      EXPECT_GE(node.lit_end, node.begin);
      if (node.lit_end > node.begin) {
        EXPECT_EQ(node.begin, end) << "one path";
        end = node.lit_end;
      }
    }
    return end;
  };
  EXPECT_EQ(lit({}), 0);
  EXPECT_EQ(lit(edited), 299) << "what is stored: all but the last token";
  EXPECT_EQ(lit(tokens), 299);
  EXPECT_EQ(lit(std::span(tokens).first(150)), 150) << "inside a node";
  tokens[0] = 51;
  EXPECT_EQ(lit(tokens), 0);

  // The end of one branch may equal the beginning of another's children.
  auto other = Tokens(300, 2);
  for (const TokenId next : {1, 2}) {
    other[200] = next;
    Lease lease = toy.Acquire(other);
    ASSERT_TRUE(toy.Run(lease).ok());
    toy.cache->Finish(std::move(lease));
  }
  auto mixed = edited;
  std::copy(other.begin() + 200, other.end(), mixed.begin() + 200);
  EXPECT_EQ(lit(mixed), 200);
}

// Another model wants the memory: what is cached goes, least worth first, and its pages with it;
// what runs stays, and goes on right. With the old budget there is room again.
TEST(StateCache, ABudgetShrinksUnderLoadAndGrowsAgain) {
  Toy toy({.context_tokens = 1024});
  StateCache& cache = *toy.cache;
  for (uint64_t seed = 1; seed < 120; ++seed) {
    Lease lease = toy.Acquire(Tokens(600, seed));
    ASSERT_TRUE(toy.Run(lease).ok());
    cache.Finish(std::move(lease));
  }
  const size_t full = cache.stats().bytes_cached;
  Lease running = toy.Acquire(Tokens(700, 500));
  ASSERT_TRUE(cache.Start(running).ready());
  ASSERT_TRUE(cache.Reserve(running, 100).ok());
  const size_t least = cache.least_budget();
  ASSERT_LT(least, full / 4);
  for (const size_t wanted : {full / 2, full / 4, least}) {
    size_t budget = cache.SetBudget(wanted);
    for (int calls = 0; calls < 8 && budget > wanted; ++calls) budget = cache.SetBudget(wanted);
    EXPECT_EQ(budget, wanted);
    EXPECT_LE(cache.resident_bytes(), budget);
    EXPECT_EQ(cache.stats().bytes_budget, budget);
    EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants().message();
  }
  ASSERT_TRUE(toy.Run(running).ok());
  EXPECT_LE(cache.resident_bytes(), least);
  cache.Finish(std::move(running));

  EXPECT_EQ(cache.SetBudget(SIZE_MAX), size_t{8} << 20) << "never more than it was made with";
  for (uint64_t seed = 200; seed < 260; ++seed) {
    Lease lease = toy.Acquire(Tokens(600, seed));
    ASSERT_TRUE(toy.Run(lease).ok());
    cache.Finish(std::move(lease));
  }
  EXPECT_GT(cache.stats().bytes_cached, 2 * least);
  EXPECT_TRUE(cache.CheckInvariants().ok());
}

// Who listens has lost what it was told: it is told again, from the beginning.
TEST(StateCache, WhatWasToldAndIsLostIsToldAgain) {
  Toy toy({});
  toy.key.salt = "";
  std::vector<BlockEvent> told;
  bool loses = false;
  toy.cache->Announce([&](std::vector<BlockEvent> events) {
    if (loses) return false;
    for (BlockEvent& event : events) {
      if (event.kind == BlockEvent::Kind::kCleared) told.clear();
      told.push_back(std::move(event));
    }
    return true;
  });
  const auto run = [&](uint64_t seed) {
    Lease lease = toy.Acquire(Tokens(300, seed));
    ASSERT_TRUE(toy.Run(lease).ok());
    toy.cache->Finish(std::move(lease));
    toy.cache->SetTime(static_cast<int64_t>(seed));
  };
  run(1);
  run(2);
  loses = true;
  run(3);
  loses = false;
  toy.cache->SetTime(4);
  size_t blocks = 0;
  for (const BlockEvent& event : told) blocks += event.hashes.size();
  EXPECT_EQ(told.front().kind, BlockEvent::Kind::kCleared);
  EXPECT_EQ(blocks, 3 * (299 / kBlockTokens));
}

// A cache that nothing runs on reserves nothing: no room for a request that does not come.
TEST(StateCache, AnIdleCacheGivesUpAllButItsTables) {
  Toy toy({.context_tokens = 1024});
  StateCache& cache = *toy.cache;
  const size_t empty = cache.stats().bytes_metadata;
  for (uint64_t seed = 1; seed < 120; ++seed) {
    Lease lease = toy.Acquire(Tokens(600, seed));
    ASSERT_TRUE(toy.Run(lease).ok());
    cache.Finish(std::move(lease));
  }
  size_t budget = cache.SetBudget(0);
  for (int calls = 0; calls < 8; ++calls) budget = cache.SetBudget(0);
  EXPECT_EQ(cache.stats().bytes_cached, 0u);
  EXPECT_EQ(budget, cache.stats().bytes_metadata);
  EXPECT_LT(budget, cache.least_budget() / 2) << "an empty one has " << empty;
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants().message();

  // A request that comes all the same is refused, and goes on when there is room again.
  Lease refused = toy.Acquire(Tokens(600, 7));
  EXPECT_EQ(cache.Start(refused).status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.SetBudget(cache.least_budget()), cache.least_budget());
  ASSERT_TRUE(toy.Run(refused).ok());
  cache.Finish(std::move(refused));
  EXPECT_TRUE(cache.CheckInvariants().ok()) << cache.CheckInvariants().message();
}

TEST(StateCache, TenantsShareNothing) {
  Toy toy({});
  const auto tokens = Tokens(300);
  Lease first = toy.Acquire(tokens);
  ASSERT_TRUE(toy.Run(first).ok());
  toy.cache->Finish(std::move(first));
  toy.key.salt = "somebody else";
  Lease other = toy.Acquire(tokens);
  EXPECT_EQ(other.report().known_tokens, 0);
  EXPECT_EQ(other.report().reason, MissReason::kCold) << "not even a hint that it exists elsewhere";
  EXPECT_TRUE(toy.cache->View(toy.key, 100).empty());
  toy.key = {"other adapter", "tenant"};
  Lease adapter = toy.Acquire(tokens);
  EXPECT_EQ(adapter.report().reason, MissReason::kOtherNamespace);
}

// Every fourth row stays. What the tree has is not touched, others start from it as ever, and what
// was given back is free.
TEST(StateCache, CompactedLeasesHoldWhatIsKept) {
  Toy toy({});
  const auto tokens = Tokens(400);
  const std::vector<float> folds = Toy::Folds(tokens);
  Lease lease = toy.Acquire(tokens);
  ASSERT_TRUE(toy.Run(lease).ok());
  const uint64_t leased = toy.cache->stats().blocks_leased;
  const std::vector<BlockId> before(lease.blocks().begin(), lease.blocks().end());
  // A move that fails changes nothing.
  const Status failed = toy.cache->Compact(
      lease, 100, false, [](auto, auto) { return ResourceExhausted("no memory for the lists"); });
  EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(lease.extent(), (Extent{400, 400}));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), lease.blocks().begin()));
  EXPECT_EQ(toy.cache->stats().blocks_leased, leased);
  ASSERT_TRUE(toy.cache->CheckInvariants().ok());

  const auto move = [&](std::span<const BlockId> from, std::span<const BlockId> to) {
    const auto row = [&](std::span<const BlockId> table, int32_t p) {
      return Raw(toy.cache->memory().block(table[size_t(p / kBlockTokens)]).As<float>()) +
             (p % kBlockTokens) * 16;
    };
    for (int32_t i = 0; i < 100; ++i) std::copy_n(row(from, 4 * i), 16, row(to, i));
    return OkStatus();
  };
  ASSERT_TRUE(toy.cache->Compact(lease, 100, false, move).ok());
  EXPECT_EQ(lease.extent(), (Extent{400, 100}));
  EXPECT_EQ(lease.blocks().size(), 2u);
  EXPECT_EQ(toy.cache->stats().blocks_leased, 2u);
  for (int32_t i = 0; i < 100; ++i) EXPECT_EQ(*toy.Row(lease, i), folds[size_t(4 * i + 1)]);
  ASSERT_TRUE(toy.cache->CheckInvariants().ok()) << toy.cache->CheckInvariants().message();

  // Rows follow behind those that stay; nothing of them is stored.
  const TokenId reply[] = {3, 1, 4};
  toy.cache->Append(lease, reply);
  ASSERT_TRUE(toy.cache->Reserve(lease, 3).ok());
  ASSERT_TRUE(toy.cache->Commit(lease, {3}).ok());
  EXPECT_EQ(lease.extent(), (Extent{403, 103}));
  toy.cache->Finish(std::move(lease));
  EXPECT_EQ(toy.cache->stats().blocks_leased, 0u);
  auto longer = tokens;
  longer.insert(longer.end(), std::begin(reply), std::end(reply));
  longer.push_back(7);
  Lease next = toy.Acquire(longer);
  ASSERT_TRUE(toy.Run(next).ok());  // reads back all rows of the exact prompt
  EXPECT_LE(next.report().used_tokens, 400);
  EXPECT_GE(next.report().used_tokens, 399);
}

TEST(StateCache, TheEndOfAPromptMayHaveToBeRun) {
  Toy toy({});
  const auto tokens = Tokens(400);
  const Boundary boundary[] = {{200, BoundaryKind::kMessage}};
  Lease first = toy.Acquire(tokens, boundary);
  ASSERT_TRUE(toy.Run(first).ok());
  toy.cache->Finish(std::move(first));
  CacheRequest request;
  request.key = &toy.key;
  request.tokens = tokens;
  request.replay_tokens = 30;
  Lease again = toy.cache->Acquire(request);
  ASSERT_TRUE(toy.Run(again).ok());
  EXPECT_EQ(again.report().used_tokens, 200) << "the state at the end would leave one to run";
  request.replay_tokens = 1000;  // more than there is
  Lease all = toy.cache->Acquire(request);
  ASSERT_TRUE(toy.Run(all).ok());
  EXPECT_EQ(all.report().used_tokens, 0);
}

}  // namespace
}  // namespace reprise
