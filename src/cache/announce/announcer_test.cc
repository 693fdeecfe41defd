// SPDX-License-Identifier: Apache-2.0
// Proves that whoever follows the events knows exactly what can be resumed, whatever happens to the
// cache: runs, branches, evictions, pins, expiry, resets, for every kind of state.
#include "cache/announce/announcer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

constexpr int32_t kTokens = 16;  // of a block

// Somebody who hears the events, and knows of tokens only what they say.
class Follower {
 public:
  void Hear(const std::vector<BlockEvent>& events) {
    for (const BlockEvent& event : events) {
      switch (event.kind) {
        case BlockEvent::Kind::kCleared:
          blocks_.clear();
          break;
        case BlockEvent::Kind::kRemoved:
          for (const uint64_t hash : event.hashes) {
            EXPECT_EQ(blocks_.erase(hash), 1u) << "a block that nobody was told of";
          }
          break;
        case BlockEvent::Kind::kStored: {
          ASSERT_EQ(event.tokens.size(), event.hashes.size() * kTokens);
          uint64_t above = event.parent.value_or(0);
          if (event.parent) {
            EXPECT_TRUE(blocks_.contains(above));
          }
          for (size_t i = 0; i < event.hashes.size(); ++i) {
            const auto at = event.tokens.begin() + static_cast<ptrdiff_t>(i * kTokens);
            const Block block{above, {at, at + kTokens}};
            EXPECT_TRUE(blocks_.emplace(event.hashes[i], block).second) << "told twice";
            above = event.hashes[i];
          }
          break;
        }
      }
    }
    by_content_.clear();
    for (const auto& [hash, block] : blocks_) {
      EXPECT_TRUE(by_content_.emplace(block, hash).second) << "two names of one block";
    }
  }

  // How many blocks of a prompt it knows, one after another.
  int32_t Match(std::span<const TokenId> prompt) const {
    uint64_t above = 0;
    int32_t count = 0;
    for (; (count + 1) * kTokens <= static_cast<int32_t>(prompt.size()); ++count) {
      const auto part = prompt.subspan(static_cast<size_t>(count) * kTokens, kTokens);
      const auto found = by_content_.find({above, {part.begin(), part.end()}});
      if (found == by_content_.end()) break;
      above = found->second;
    }
    return count;
  }
  size_t size() const { return blocks_.size(); }

 private:
  using Block = std::pair<uint64_t, std::vector<TokenId>>;
  std::map<uint64_t, Block> blocks_;
  std::map<Block, uint64_t> by_content_;
};

// Random conversations that branch, in a cache with room for few of them.
class World {
 public:
  World(const StateSpec& spec, uint64_t seed)
      : client_(OptionsOf(spec)), rng_(seed), plain_{"model", ""} {
    client_.index.Announce();
    follower_.Hear(client_.index.TakeBlockEvents());
  }

  void Act() {
    client_.index.SetTime(now_ms_ += static_cast<int64_t>(rng_.Below(200)));
    std::vector<TokenId> tokens;
    if (!known_.empty() && rng_.Below(4) > 0) {
      tokens = known_[rng_.Below(known_.size())];
      if (rng_.Below(2) == 0) tokens.resize(1 + rng_.Below(tokens.size()));
    }
    if (tokens.size() < 300) {
      const auto more = RandomTokens(rng_.Next(), 1 + rng_.Below(90));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    CacheRequest request;
    request.key = rng_.Below(5) == 0 ? &client_.key : &plain_;  // a tenant's is not told
    if (rng_.Below(8) == 0) request.pin_ms = 300;
    const auto reply = RandomTokens(rng_.Next(), rng_.Below(40));
    switch (rng_.Below(12)) {
      case 0: {  // somebody who leaves
        Lease lease = client_.Acquire(tokens, request);
        if (client_.index.Start(lease).ready()) (void)client_.Compute(lease, 40).ok();
        break;
      }
      case 1:
        client_.index.Reset(rng_.Below(2) == 0 ? &plain_ : nullptr);
        break;
      case 2:
        (void)client_.index.GiveWay(rng_.Below(1 << 20));
        break;
      case 3:
        (void)client_.index.Maintain();
        break;
      case 4:  // events are lost
        client_.index.AnnounceAgain();
        break;
      default:
        (void)client_.Run(tokens, request, reply);
        tokens.insert(tokens.end(), reply.begin(), reply.end());
    }
    client_.index.actions().clear();
    known_.push_back(std::move(tokens));
    do follower_.Hear(client_.index.TakeBlockEvents());
    while (client_.index.announces_more() && rng_.Below(4) > 0);
  }

  // A block of a prompt is known exactly if a sequence that has it, too, can go on behind it.
  void Check() {
    while (client_.index.announces_more()) follower_.Hear(client_.index.TakeBlockEvents());
    ASSERT_TRUE(client_.index.CheckInvariants().ok()) << client_.index.CheckInvariants().message();
    std::vector<int32_t> usable;
    CacheRequest request;
    request.key = &plain_;
    for (const auto& one : known_) {
      auto longer = one;
      longer.push_back(1);  // one token is always run
      usable.push_back(client_.Reusable(longer, request));
    }
    for (const auto& prompt : known_) {
      int32_t expected = 0;
      for (size_t i = 0; i < known_.size(); ++i) {
        const int32_t common = std::min(CommonPrefix(prompt, known_[i]), usable[i]);
        expected = std::max(expected, common / kTokens);
      }
      ASSERT_EQ(follower_.Match(prompt), expected);
      most_ = std::max(most_, expected);
    }
  }

  int32_t most() const { return most_; }
  size_t told() const { return follower_.size(); }
  void Forget() {
    client_.index.Reset(nullptr);
    follower_.Hear(client_.index.TakeBlockEvents());
  }

 private:
  static StateIndex::Options OptionsOf(const StateSpec& spec) {
    StateIndex::Options options;
    options.spec = spec;
    options.block_tokens = kTokens;
    options.cache.context_tokens = 600;
    options.cache.snapshot_gap = 8;
    options.cache.budget_bytes = LeastBudget(spec, options.cache) + (3 << 20);
    return options;
  }

  IndexClient client_;
  Rng rng_;
  const NamespaceKey plain_;
  Follower follower_;
  std::vector<std::vector<TokenId>> known_;
  int64_t now_ms_ = 1;
  int32_t most_ = 0;
};

void Follow(const StateSpec& spec) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(spec, seed);
    for (int i = 0; i < 120; ++i) {
      world.Act();
      if (i % 4 == 3) world.Check();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(world.most(), 6);
    world.Forget();
    EXPECT_EQ(world.told(), 0u);
  }
}

TEST(Announcer, FullKv) { Follow(SpecOfKinds(true, 0, false)); }
TEST(Announcer, FullKvAndRecurrent) { Follow(SpecOfKinds(true, 0, true)); }
TEST(Announcer, Recurrent) { Follow(SpecOfKinds(false, 0, true)); }
TEST(Announcer, WindowAndRecurrent) { Follow(SpecOfKinds(false, 40, true)); }
TEST(Announcer, Window) { Follow(SpecOfKinds(false, 40, false)); }

// Who listens has lost everything: it is told anew, a part with each call, and what changes
// meanwhile as it changes.
TEST(Announcer, TellsEverythingAnewInParts) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, false);
  options.block_tokens = kTokens;
  options.cache.budget_bytes = size_t{512} << 20;
  options.cache.context_tokens = 6000;
  IndexClient client(std::move(options));
  client.index.Announce();
  const NamespaceKey plain{"model", ""};
  CacheRequest request;
  request.key = &plain;
  for (uint64_t i = 0; i < 200; ++i) (void)client.Run(RandomTokens(i, 320), request);
  Follower all, late;
  all.Hear(client.index.TakeBlockEvents());
  EXPECT_EQ(all.size(), 200u * 20);
  client.index.AnnounceAgain();
  int calls = 0;
  do {
    const auto events = client.index.TakeBlockEvents();
    size_t blocks = 0;
    for (const BlockEvent& event : events) blocks += event.hashes.size();
    EXPECT_LE(blocks, 2u * 600) << "the engine's thread does not stop for it";
    late.Hear(events);
    if (calls == 1) {  // a conversation goes on that was not told anew yet
      auto longer = RandomTokens(199, 320);
      const auto more = RandomTokens(999, 64);
      longer.insert(longer.end(), more.begin(), more.end());
      (void)client.Run(longer, request);
    }
    ++calls;
  } while (client.index.announces_more());
  EXPECT_GT(calls, 3);
  EXPECT_EQ(late.size(), 200u * 20 + 4);
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(late.Match(RandomTokens(i, 320)), 20) << i;
}

// The same tokens computed with another adapter are other blocks.
TEST(Announcer, EqualTokensOfTwoModelsAreTwoBlocks) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, false);
  options.block_tokens = kTokens;
  options.cache.budget_bytes = size_t{64} << 20;
  options.cache.context_tokens = 600;
  IndexClient client(std::move(options));
  client.index.Announce();
  (void)client.index.TakeBlockEvents();
  const auto prompt = RandomTokens(1, 100);
  std::vector<std::vector<uint64_t>> told;
  for (const char* digest : {"model", "model with an adapter"}) {
    const NamespaceKey key{digest, ""};
    CacheRequest request;
    request.key = &key;
    (void)client.Run(prompt, request);
    const auto events = client.index.TakeBlockEvents();
    ASSERT_EQ(events.size(), 1u);
    told.push_back(events[0].hashes);
  }
  for (const uint64_t hash : told[0]) {
    EXPECT_EQ(std::count(told[1].begin(), told[1].end(), hash), 0);
  }
}

TEST(Announcer, BeginsWithACleanSlateAndTellsNothingOfTenants) {
  StateIndex::Options options;
  options.spec = SpecOfKinds(true, 0, false);
  options.block_tokens = kTokens;
  options.cache.budget_bytes = 64 << 20;
  options.cache.context_tokens = 600;
  IndexClient client(std::move(options));
  client.index.Announce();
  auto events = client.index.TakeBlockEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, BlockEvent::Kind::kCleared);
  const auto prompt = RandomTokens(1, 100);
  (void)client.Run(prompt);  // of a tenant
  EXPECT_TRUE(client.index.TakeBlockEvents().empty());
  const NamespaceKey plain{"model", ""};
  CacheRequest request;
  request.key = &plain;
  (void)client.Run(prompt, request);
  events = client.index.TakeBlockEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, BlockEvent::Kind::kStored);
  EXPECT_EQ(events[0].hashes.size(), 6u);
  EXPECT_FALSE(events[0].parent.has_value());
  EXPECT_TRUE(std::equal(events[0].tokens.begin(), events[0].tokens.end(), prompt.begin()));
  EXPECT_TRUE(client.index.TakeBlockEvents().empty()) << "nothing has changed";
}

}  // namespace
}  // namespace reprise
