// SPDX-License-Identifier: Apache-2.0
// Proves bounds: what has expired is not served and goes in bounded time, waiting requests take
// nothing of the budget, pins hold no more than they may, a running sequence no more than its
// window.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

StateIndex::Options OptionsOf(bool full, int window, bool recurrent, size_t budget) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(full, window, recurrent);
  options.cache.budget_bytes = budget;
  options.cache.context_tokens = 1024;
  return options;
}

std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Ttl, WhatHasExpiredIsNotServed) {
  for (const bool recurrent : {false, true}) {
    StateIndex::Options options = OptionsOf(true, 0, recurrent, 64 << 20);
    options.cache.ttl_ms = 1000;
    IndexClient client(std::move(options));
    const auto prompt = RandomTokens(1, 300);
    client.index.SetTime(1000);
    client.Run(prompt);
    EXPECT_EQ(client.Reusable(prompt), 299);
    // More than one step lets go of, so that lookups have to notice.
    for (uint64_t i = 2; i < 40; ++i) client.Run(RandomTokens(i, 100));
    client.index.SetTime(2001);
    EXPECT_EQ(client.Reusable(prompt), 0);
    EXPECT_EQ(client.Reusable(RandomTokens(39, 100)), 0);
    while (client.index.Maintain()) {
    }
    EXPECT_EQ(client.index.stats().entries, 0u);
    EXPECT_TRUE(client.index.CheckInvariants().ok());
  }
}

// A use of what lies below keeps the way to it, and nothing beside.
TEST(Ttl, APrefixLivesAsLongAsWhatIsBelow) {
  for (const bool recurrent : {false, true}) {
    StateIndex::Options options = OptionsOf(true, 0, recurrent, 64 << 20);
    options.cache.ttl_ms = 1000;
    IndexClient client(std::move(options));
    const auto head = RandomTokens(1, 300);
    const auto a = Join(head, RandomTokens(2, 100)), b = Join(head, RandomTokens(3, 100));
    client.index.SetTime(1);
    client.Run(head);
    client.Run(a);
    client.Run(b);
    for (int64_t now = 500; now < 5000; now += 500) {
      client.index.SetTime(now);
      client.Run(a);
    }
    EXPECT_EQ(client.Reusable(a), 399);
    EXPECT_LT(client.Reusable(b), 301);
    if (!recurrent) {
      EXPECT_EQ(client.Reusable(b), 300);
    }
    EXPECT_TRUE(client.index.CheckInvariants().ok());
  }
}

// Entries that have expired but cannot go (inner, pinned) must not keep maintenance busy.
TEST(Ttl, MaintenanceEndsAlthoughExpiredEntriesStay) {
  StateIndex::Options options = OptionsOf(true, 0, false, 64 << 20);
  options.cache.ttl_ms = 1000;
  IndexClient client(std::move(options));
  std::vector<TokenId> path;
  client.index.SetTime(1);
  for (uint64_t i = 0; i < 100; ++i) {  // a chain of inner nodes
    path = Join(path, RandomTokens(i, 64));
    if (path.size() > 900) path.resize(64);
    client.Run(path);
    client.Run(Join(path, RandomTokens(1000 + i, 64)));
  }
  CacheRequest pinned;
  pinned.pin_ms = 1'000'000;
  for (uint64_t i = 0; i < 100; ++i) client.Run(RandomTokens(2000 + i, 64), pinned);
  client.index.SetTime(5000);
  int calls = 0;
  while (client.index.Maintain()) ASSERT_LT(++calls, 1000);
  EXPECT_EQ(client.index.stats().entries_pinned, 100u);
  EXPECT_EQ(client.Reusable(RandomTokens(2050, 64)), 63);
  EXPECT_TRUE(client.index.CheckInvariants().ok());
}

TEST(Waiting, TokensOfQueuedPromptsTakeNothing) {
  StateIndex::Options options = OptionsOf(true, 0, false, 2 << 20);
  options.cache.context_tokens = 1024;
  IndexClient client(std::move(options));
  const auto prompt = RandomTokens(1, 300);
  client.Run(prompt);
  const size_t used = client.index.bytes_used();
  std::vector<Lease> waiting;
  for (uint64_t i = 0; i < 200; ++i) waiting.push_back(client.Acquire(RandomTokens(i + 2, 4000)));
  EXPECT_LE(client.index.bytes_used(), used + 4096) << "200 prompts of 16 kB wait";
  EXPECT_EQ(client.Reusable(prompt), 299);
  Lease lease = client.Acquire(RandomTokens(500, 1000));
  EXPECT_TRUE(client.index.Start(lease).ready());
  EXPECT_TRUE(client.Compute(lease).ok());
}

// A pin holds the whole way from the root, so that is what it is charged with: once, however many
// pins share it.
TEST(PinBudget, PinsHoldAtMostHalf) {
  constexpr size_t kBlock = 64 << 10;
  for (const bool recurrent : {false, true}) {
    constexpr size_t kBudget = 400 * kBlock + (4 << 20);
    StateIndex::Options options = OptionsOf(true, 0, recurrent, kBudget);
    options.policy = std::make_unique<LruPolicy>();  // what is not pinned goes for a scan
    IndexClient client(std::move(options));
    CacheRequest pinned;
    pinned.pin_ms = 1'000'000;
    // Long prompts under short pinned ends: the leaf is small beside what it holds.
    const auto head = RandomTokens(1, 640);
    for (uint64_t i = 0; i < 60; ++i) {
      const auto long_prompt = Join(RandomTokens(100 + i, 600), {});
      client.Run(long_prompt);
      client.Run(Join(long_prompt, RandomTokens(200 + i, 70)), pinned);
      client.Run(Join(head, RandomTokens(300 + i, 70)), pinned);
      ASSERT_TRUE(client.index.CheckInvariants().ok()) << client.index.CheckInvariants().message();
    }
    // What nobody may evict but a running request in need: at most half.
    EXPECT_GT(client.index.stats().entries_pinned, 10u);
    for (uint64_t i = 0; i < 200; ++i) client.Run(RandomTokens(1000 + i, 1000));
    size_t held = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      const auto reusable =
          client.Reusable(Join(RandomTokens(100 + i, 600), RandomTokens(200 + i, 70)));
      held += size_t(reusable) / 64 * kBlock;
    }
    EXPECT_LE(held, kBudget / 2);
    EXPECT_LE(client.index.pinned_bytes(), kBudget / 2);
    EXPECT_GE(client.index.pinned_bytes(), held);
  }
}

TEST(PinBudget, ManyPinsOnOnePrefixAreChargedOnce) {
  IndexClient client(OptionsOf(true, 0, false, 300 * (64 << 10)));
  const auto head = RandomTokens(1, 6400);  // 100 blocks
  client.Run(head);
  CacheRequest pinned;
  pinned.pin_ms = 1'000'000;
  for (uint64_t i = 0; i < 20; ++i) client.Run(Join(head, RandomTokens(10 + i, 60)), pinned);
  EXPECT_EQ(client.index.stats().entries_pinned, 21u);  // and what they start from
  client.index.SetTime(2'000'000);
  EXPECT_EQ(client.index.pinned_bytes(), 0u);
}

// However long it runs: what its layers can no longer see, others may have.
TEST(Window, ARunningSequenceHoldsTheBlocksOfItsWindow) {
  for (const bool recurrent : {false, true}) {
    constexpr int32_t kWindow = 100, kRows = 64;
    IndexClient client(OptionsOf(false, kWindow, recurrent, 64 << 20));
    Lease lease = client.Acquire(RandomTokens(1, 1000));
    ASSERT_TRUE(client.index.Start(lease).ready());
    const LeaseRecord& record = client.index.record(lease);
    for (int32_t done = 0; done < 1000;) {
      const int32_t rows = std::min(kRows, 1000 - done);
      ASSERT_TRUE(client.index.Reserve(lease, rows).ok());
      ASSERT_TRUE(client.index.Commit(lease, {rows}).ok());
      client.index.actions().clear();
      done += rows;
      const auto held = std::count_if(record.table.begin(), record.table.end(),
                                      [](const BlockId& id) { return id.valid(); });
      // The window may begin inside a block and end inside another.
      EXPECT_LE(held, kWindow / 64 + 2) << "after " << done;
    }
    client.index.Finish(std::move(lease));
    EXPECT_TRUE(client.index.CheckInvariants().ok());
  }
}

// There are as many states as nodes, about, but a node may have many: where all are snapshots, the
// next request that runs takes one of theirs, however many bytes are free. (Seed 2033630 of the
// simulation.)
TEST(Bounds, SnapshotsLeaveAStateToWhoeverRuns) {
  StateIndex::Options options;
  options.spec.token_cost = 1000;
  options.spec.layers.push_back({0, StateKind::kRecurrent, 0, {{"s", {4}, DType::kF32}}});
  options.cache.budget_bytes = 256 << 10;
  options.cache.context_tokens = 1024;
  options.cache.sequence_count = 1;
  options.cache.snapshot_gap = 1;
  options.back = [](auto, auto) { return OkStatus(); };
  IndexClient client(std::move(options));
  std::vector<Boundary> boundaries;
  for (int32_t i = 1; i <= 60; ++i) boundaries.push_back({3 * i, BoundaryKind::kMessage});
  CacheRequest request;
  request.boundaries = boundaries;
  size_t most = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    client.Run(RandomTokens(i, 200), request);
    most = std::max<size_t>(most, client.index.stats().snapshots);
  }
  EXPECT_EQ(most, client.index.state_capacity()) << "all of them were in use";
  EXPECT_TRUE(client.index.CheckInvariants().ok()) << client.index.CheckInvariants().message();
}

}  // namespace
}  // namespace reprise
