// SPDX-License-Identifier: Apache-2.0
// Proves what a store does with a home that others write to: it learns what they have, keeps what
// their records only rename, and takes bounded work for what they lose.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/fault/memory_home.h"
#include "tier/record_store.h"

namespace reprise {
namespace {

constexpr size_t kBlock = 100, kState = 70;

std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(Mix64(seed + i) % 1000));
  return tokens;
}

class SharedStoreTest : public testing::Test {
 protected:
  std::unique_ptr<RecordStore> Open(MemoryHome::Fault fault = nullptr) {
    auto home = std::make_unique<MemoryHome>(server_, std::move(fault));
    auto store = RecordStore::Open(std::move(home), limits_, key_);
    EXPECT_TRUE(store.ok());
    return std::move(*store);
  }
  bool Store(RecordStore& store, const std::vector<TokenId>& tokens, int32_t position) {
    const PromptPath path(root_, tokens);
    const auto draft = store.BeginStore(path, {position, {kBlock, kState}, PathId{{7}}});
    if (!draft) return false;
    for (const RecordLayout::Part& part : draft->layout.parts()) {
      store.AddPart(std::vector<std::byte>(part.bytes));
    }
    const uint64_t before = store.stats().stores;
    while (!store.settled()) {
      (void)store.Poll();
      std::this_thread::yield();
    }
    return store.stats().stores > before;
  }
  // What Poll says when the look was answered.
  RecordStore::News Look(RecordStore& store, const std::vector<TokenId>& tokens) {
    EXPECT_NE(store.Look(root_, tokens), 0u);
    for (;;) {
      RecordStore::News news = store.Poll();
      if (!news.looked.empty()) return news;
      std::this_thread::yield();
    }
  }
  int32_t Deepest(RecordStore& store, const std::vector<TokenId>& tokens) {
    const PromptPath path(root_, tokens);
    const auto place = store.Deepest(path, path.size());
    return place ? place->position : 0;
  }

  const std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>();
  const StateKey key_ = StateKey::Of({5});
  const PathId root_ = key_.NamespaceOf("model", "tenant");
  StoreLimits limits_;
};

TEST_F(SharedStoreTest, TwoServersThatStoreTheSameSystemPromptForgetNothing) {
  constexpr int kConversations = 200;
  const auto first = Open(), second = Open();
  const auto system = Tokens(1, 128);
  const auto talk = [&](int i) {
    auto tokens = system;
    for (const TokenId token : Tokens(1000 + 1000 * uint64_t(i), 64)) tokens.push_back(token);
    return tokens;
  };
  ASSERT_TRUE(Store(*first, system, 128));
  for (int i = 0; i < kConversations; ++i) ASSERT_TRUE(Store(*first, talk(i), 192));
  ASSERT_TRUE(Store(*second, system, 128)) << "it has not looked";
  ASSERT_EQ(first->stats().records, size_t{kConversations + 1});
  const uint64_t steps = first->catalog().steps();
  const RecordStore::News news = Look(*first, talk(0));
  EXPECT_TRUE(news.gone.empty());
  EXPECT_EQ(first->stats().records, size_t{kConversations + 1});
  EXPECT_LE(first->catalog().steps() - steps, 10u);
  EXPECT_EQ(Deepest(*first, talk(kConversations - 1)), 192);
  // Theirs is read from now on: the old one may go.
  first->catalog().ForEach([&](RecordId, const Catalog::Record& record) {
    if (record.facts.begin == 0) {
      EXPECT_EQ(record.name, server_->names.at(record.facts.path));
    }
  });
}

TEST_F(SharedStoreTest, ALostRecordThatManyContinueTakesBoundedWorkAPoll) {
  constexpr int kConversations = 500;
  const auto store = Open();
  const auto system = Tokens(1, 128);
  const auto talk = [&](int i) {
    auto tokens = system;
    for (const TokenId token : Tokens(1000 + 1000 * uint64_t(i), 64)) tokens.push_back(token);
    return tokens;
  };
  ASSERT_TRUE(Store(*store, system, 128));
  for (int i = 0; i < kConversations; ++i) ASSERT_TRUE(Store(*store, talk(i), 192));
  {
    std::lock_guard lock(server_->mutex);
    server_->names.erase(PromptPath(root_, system).At(128));
  }
  uint64_t steps = store->catalog().steps();
  size_t gone = 0;
  const auto bounded = [&](const RecordStore::News& news) {
    EXPECT_LE(news.gone.size(), 2 * RecordStore::kDropsPerPoll);
    EXPECT_LE(store->catalog().steps() - steps, 8 * RecordStore::kDropsPerPoll);
    steps = store->catalog().steps();
    gone += news.gone.size();
    return news.more;
  };
  bool more = bounded(Look(*store, talk(0)));
  EXPECT_TRUE(more);
  EXPECT_EQ(Deepest(*store, talk(kConversations / 2)), 0) << "nobody finds it from now on";
  for (int i = 0; more && i < 100; ++i) more = bounded(store->Poll());
  EXPECT_FALSE(more);
  EXPECT_EQ(gone, size_t{kConversations + 1});
  EXPECT_EQ(store->stats().records, 0u);
  EXPECT_TRUE(Store(*store, system, 128));
}

TEST_F(SharedStoreTest, AResetIsSeenAtOnceAndTakesBoundedWorkAPoll) {
  constexpr uint64_t kRecords = 500;
  const auto store = Open();
  for (uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(Store(*store, Tokens(1000 * i, 64), 64));
  uint64_t steps = store->catalog().steps();
  store->Forget(&root_);
  EXPECT_LE(store->catalog().steps() - steps, 4 * RecordStore::kDropsPerPoll);
  for (uint64_t i = 0; i < kRecords; i += 50) EXPECT_EQ(Deepest(*store, Tokens(1000 * i, 64)), 0);
  bool more = true;
  for (int i = 0; more && i < 100; ++i) {
    steps = store->catalog().steps();
    more = store->Poll().more;
    EXPECT_LE(store->catalog().steps() - steps, 4 * RecordStore::kDropsPerPoll);
  }
  EXPECT_EQ(store->stats().records, 0u);
}

}  // namespace
}  // namespace reprise
