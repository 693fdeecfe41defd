// SPDX-License-Identifier: Apache-2.0
// Proves what the life of one lease promises beyond the law: what its end costs, and what it keeps.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

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

}  // namespace
}  // namespace reprise
