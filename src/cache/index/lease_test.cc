// SPDX-License-Identifier: Apache-2.0
// Proves what the life of one lease promises beyond the law: what its end costs, and what it keeps.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

// A long request needs room for its tokens. What it goes on from is the last to make it, though it
// is worth the least of all.
TEST(Start, DoesNotEvictWhatItGoesOnFrom) {
  for (const auto& [kv, recurrent] :
       {std::pair(false, true), std::pair(true, true), std::pair(true, false)}) {
    StateIndex::Options options;
    options.spec = SpecOfKinds(kv, 0, recurrent);
    options.cache.budget_bytes = size_t{3} << 20;
    options.cache.snapshot_gap = 16;
    IndexClient client(std::move(options));
    constexpr uint64_t kPrompts = 64;
    for (uint64_t i = 0; i < kPrompts; ++i) client.Run(RandomTokens(i, 128));
    uint64_t oldest = 0;  // that is still there
    const auto more = [&] {
      std::vector<TokenId> tokens = RandomTokens(oldest, 128);
      const std::vector<TokenId> tail = RandomTokens(1000, 100'000);
      tokens.insert(tokens.end(), tail.begin(), tail.end());
      return tokens;
    };
    while (oldest < kPrompts && client.Reusable(more()) == 0) ++oldest;
    ASSERT_GT(oldest, 0u) << "all of them fit";
    ASSERT_LT(oldest, kPrompts);
    const int32_t reusable = client.Reusable(more());
    const uint64_t evicted = client.index.stats().entries;
    Lease lease = client.Acquire(more());
    ASSERT_TRUE(client.index.Start(lease).ready());
    EXPECT_LT(client.index.stats().entries, evicted) << "nothing had to make room";
    EXPECT_EQ(client.index.record(lease).report.used_tokens, reusable) << kv << recurrent;
    client.index.Finish(std::move(lease));
    EXPECT_TRUE(client.index.CheckInvariants().ok());
  }
}

// What others go on from, too, does not make room before they have: whoever goes on from it changes
// nothing about that.
TEST(Start, FromWhereOthersGoOnLeavesTheOrderAsItWas) {
  for (const bool recurrent : {false, true}) {
    StateIndex::Options options;
    options.spec = SpecOfKinds(true, 0, recurrent);
    options.cache.budget_bytes = size_t{3} << 20;
    IndexClient client(std::move(options));
    const auto branch = [](uint64_t seed) {
      std::vector<TokenId> tokens = RandomTokens(1, 512);
      const std::vector<TokenId> tail = RandomTokens(seed, 256);
      tokens.insert(tokens.end(), tail.begin(), tail.end());
      return tokens;
    };
    for (const uint64_t seed : {10, 11, 12}) client.Run(branch(seed));
    CacheRequest request;
    request.idle = true;  // it does not count as a use
    Lease lease = client.Acquire(branch(13), request);
    ASSERT_TRUE(client.index.Start(lease).ready());
    EXPECT_GE(client.index.record(lease).report.used_tokens, 448);
    EXPECT_EQ(client.index.CheckInvariants().message(), "") << recurrent;
    client.index.Finish(std::move(lease));
    EXPECT_EQ(client.index.CheckInvariants().message(), "") << recurrent;
  }
}

// A running state becomes a snapshot where it lies: nothing is copied, and a sequence that is sent
// back to waiting keeps its state although no memory is to be had.
TEST(Finish, RenamesTheLiveStateAndNeedsNoRoom) {
  bool fails = false;
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, true);
  options.cache.budget_bytes = 64 << 20;
  options.back = [&](auto, auto) { return fails ? ResourceExhausted("none") : OkStatus(); };
  IndexClient client(std::move(options));
  const auto prompt = RandomTokens(1, 300), reply = RandomTokens(2, 100);
  Lease lease = client.Acquire(prompt);
  ASSERT_TRUE(client.index.Start(lease).ready());
  ASSERT_TRUE(client.Compute(lease).ok());
  client.index.Append(lease, reply);
  ASSERT_TRUE(client.Compute(lease).ok());

  const StateId live = client.index.record(lease).state;
  const size_t used = client.index.bytes_used();
  fails = true;
  const ReuseReport report = client.index.Finish(std::move(lease));
  EXPECT_EQ(report.stored_tokens, 400);
  for (const Action& action : client.index.actions()) {
    EXPECT_NE(action.verb, Action::Verb::kCopyState);
    EXPECT_NE(action.verb, Action::Verb::kTakeState);
    EXPECT_FALSE(action.verb == Action::Verb::kFreeState && action.from == live.value);
  }
  EXPECT_LE(client.index.bytes_used(), used + 1024);
  EXPECT_EQ(client.index.stats().bytes_leased, 0u);

  std::vector<TokenId> next(prompt);
  next.insert(next.end(), reply.begin(), reply.end());
  next.push_back(7);
  EXPECT_EQ(client.Reusable(next), 400);
  EXPECT_TRUE(client.index.CheckInvariants().ok());
}

// The snapshot at the end of a prompt may find no room, beside others that run. Then the end of the
// reply is kept, which needs none: the next turn reuses more than it does otherwise, by the reply.
TEST(Finish, KeepsTheReplysEndWhereThePromptsEndFoundNoRoom) {
  for (const bool room : {true, false}) {
    bool full = false;
    StateIndex::Options options;
    options.spec = SpecOfKinds(true, 0, true);
    options.cache.budget_bytes = 64 << 20;
    options.cache.snapshot_gap = 16;
    options.back = [&](auto, std::span<const StateId> states) {
      return full && !states.empty() ? ResourceExhausted("none") : OkStatus();
    };
    IndexClient client(std::move(options));
    auto tokens = RandomTokens(1, 100);
    const auto reply = RandomTokens(2, 10);
    Lease lease = client.Acquire(tokens);
    ASSERT_TRUE(client.index.Start(lease).ready());
    full = !room;
    ASSERT_TRUE(client.Compute(lease).ok());
    client.index.Append(lease, reply);
    ASSERT_TRUE(client.Compute(lease).ok());
    const ReuseReport report = client.index.Finish(std::move(lease));
    EXPECT_EQ(report.snapshots_declined > 0, !room);
    tokens.insert(tokens.end(), reply.begin(), reply.end());
    tokens.push_back(7);
    EXPECT_EQ(client.Reusable(tokens), room ? 99 : 110);
  }
}

// In pieces that compare no more than they may, also when what was found goes meanwhile; and
// whoever does not wait for the last of them finds the same.
TEST(LookUp, GoesOnWhereItWas) {
  for (const bool recurrent : {false, true}) {
    StateIndex::Options options;
    options.spec = SpecOfKinds(true, 0, recurrent);
    options.cache.budget_bytes = 64 << 20;
    IndexClient client(std::move(options));
    const auto document = RandomTokens(1, 1000);
    client.Run(document);
    const int32_t stored = recurrent ? 999 : 1000;  // a snapshot leaves a token to run
    auto question = document;
    question.resize(1100, 7);
    CacheRequest request;
    request.look_up = false;
    const auto pieces = [&](const Lease& lease) {
      int count = 1;
      int32_t left = 100;
      for (; count < 100 && !client.index.LookUp(lease, &left); ++count) {
        EXPECT_EQ(left, 0) << "all of it, until it is complete";
        left = 100;
      }
      EXPECT_GE(left, 0);
      return count;
    };
    const Lease whole = client.Acquire(question, request);
    EXPECT_EQ(pieces(whole), stored / 100 + 1);
    EXPECT_EQ(pieces(whole), 1) << "nothing is compared twice";
    EXPECT_TRUE(client.index.Start(whole).ready());
    EXPECT_EQ(client.index.record(whole).report.used_tokens, stored);

    const Lease part = client.Acquire(question, request);
    int32_t left = 300;
    EXPECT_FALSE(client.index.LookUp(part, &left));
    EXPECT_TRUE(client.index.Start(part).ready());
    EXPECT_EQ(client.index.record(part).report.used_tokens, stored);

    const Lease lost = client.Acquire(question, request);
    left = 300;
    EXPECT_FALSE(client.index.LookUp(lost, &left));
    client.index.Reset(nullptr);
    (void)pieces(lost);
    EXPECT_TRUE(client.index.Start(lost).ready());
    EXPECT_EQ(client.index.record(lost).computed.logical, 0);
    EXPECT_TRUE(client.index.CheckInvariants().ok());
  }
}

// Long prompts are neither copied when they come nor moved when their replies begin.
TEST(Acquire, TakesTheMemoryOfThePromptOver) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, false);
  options.cache.budget_bytes = 64 << 20;
  IndexClient client(std::move(options));
  const auto prompt = RandomTokens(1, 300), reply = RandomTokens(2, 100);
  std::vector<TokenId> storage;
  storage.reserve(prompt.size() + reply.size());
  storage.assign(prompt.begin(), prompt.end());
  const TokenId* place = storage.data();
  const size_t before = client.index.bytes_used();
  CacheRequest request;
  request.storage = &storage;
  Lease lease = client.Acquire(prompt, request);
  EXPECT_TRUE(storage.empty());
  EXPECT_EQ(lease.tokens().data(), place);
  EXPECT_EQ(lease.prompt_tokens(), 300);
  ASSERT_TRUE(client.index.Start(lease).ready());
  EXPECT_GE(client.index.bytes_used(), before + 400 * sizeof(TokenId))
      << "and all of it is charged";
  ASSERT_TRUE(client.Compute(lease).ok());
  client.index.Append(lease, reply);
  EXPECT_EQ(lease.tokens().data(), place);
  EXPECT_TRUE(client.index.CheckInvariants().ok());
}

// Sequences that began together are as long as each other. What each block of a reply needs once
// (to be taken, to be published) is spread over the steps of a block all the same.
TEST(Replies, OfTheSameLengthTakeAndPublishTheirBlocksInDifferentSteps) {
  constexpr size_t kCount = 128, kPerStep = 2 * kCount / 28;  // steps to the first end
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, false);
  options.cache.budget_bytes = 256 << 20;
  IndexClient client(std::move(options));
  StateIndex& index = client.index;
  std::vector<Lease> leases;
  for (size_t i = 0; i < kCount; ++i) {
    leases.push_back(client.Acquire(RandomTokens(i, 100)));
    ASSERT_TRUE(index.Start(leases.back()).ready());
    ASSERT_TRUE(client.Compute(leases.back()).ok());
  }
  size_t leased = index.stats().blocks_leased, stored = index.stats().tokens_stored;
  const size_t leased_first = leased, stored_first = stored;
  constexpr int kSteps = 4 * kBlockTokens;
  for (int step = 0; step < kSteps; ++step) {
    for (Lease& lease : leases) {
      const TokenId token = step;
      index.Append(lease, {&token, 1});
      ASSERT_TRUE(client.Compute(lease).ok());
    }
    const CacheStats now = index.stats();
    EXPECT_LE(now.blocks_leased - leased, kPerStep) << "step " << step;
    EXPECT_LE(now.tokens_stored - stored, kPerStep * kBlockTokens) << "step " << step;
    leased = now.blocks_leased;
    stored = now.tokens_stored;
  }
  EXPECT_GE(leased - leased_first, 4 * kCount);
  EXPECT_GE(stored - stored_first, 3 * kCount * kBlockTokens);
  for (Lease& lease : leases) {
    EXPECT_EQ(index.Finish(std::move(lease)).stored_tokens, 100 + kSteps) << "nothing is left out";
  }
  EXPECT_TRUE(index.CheckInvariants().ok());
}

// Two sequences and room for a block more: the one that needs it gets it, whoever took it first.
TEST(Replies, GiveUpBlocksTakenAheadBeforeAnybodyIsRefused) {
  for (const int32_t room : {0, 1, 2}) {
    StateIndex::Options options;
    options.spec = SpecOfKinds(true, 0, false);
    options.cache.budget_bytes = 64 << 20;
    IndexClient client(std::move(options));
    StateIndex& index = client.index;
    CacheRequest silent;
    silent.write = false;
    Lease first = client.Acquire(RandomTokens(1, 64), silent);
    Lease second = client.Acquire(RandomTokens(2, 64), silent);
    for (Lease* lease : {&first, &second}) {
      ASSERT_TRUE(index.Start(*lease).ready());
      ASSERT_TRUE(client.Compute(*lease).ok());
    }
    // A third takes all but `room` blocks.
    Lease third = client.Acquire(RandomTokens(3, 64), silent);
    ASSERT_TRUE(index.Start(third).ready());
    const auto free = static_cast<int32_t>(index.BytesFree() / index.block_bytes());
    ASSERT_TRUE(index.Reserve(third, (free - room) * kBlockTokens).ok());
    const auto grow = [&](Lease& lease, int count) {
      const auto reply = RandomTokens(4, static_cast<size_t>(count));
      for (const TokenId token : reply) {
        index.Append(lease, {&token, 1});
        if (!client.Compute(lease).ok()) return false;
      }
      return true;
    };
    EXPECT_EQ(grow(first, 64), room >= 1) << "its second block, and perhaps its third";
    EXPECT_TRUE(index.CheckInvariants().ok()) << index.CheckInvariants().message();
    EXPECT_EQ(grow(second, 1), room >= 2);
    EXPECT_TRUE(index.CheckInvariants().ok()) << index.CheckInvariants().message();
  }
}

}  // namespace
}  // namespace reprise
