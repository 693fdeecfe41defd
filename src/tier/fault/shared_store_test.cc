// SPDX-License-Identifier: Apache-2.0
// Proves what a store does with a home that others write to: it learns what they have, keeps what
// their records only rename, and takes bounded work for what they lose.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/fault/memory_home.h"
#include "tier/record_store.h"
#include "tier/redis/rotated_home.h"

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
    auto home = std::make_unique<MemoryHome>(server_, std::move(fault), true, keeps_ms_);
    auto store = RecordStore::Open(std::move(home), limits_, key_);
    EXPECT_TRUE(store.ok());
    return std::move(*store);
  }
  bool Store(RecordStore& store, const std::vector<TokenId>& tokens, int32_t position) {
    const PromptPath path(root_, tokens);
    while (store.Confirms(path, tokens)) {
      (void)store.Poll();
      std::this_thread::yield();
    }
    const auto draft = store.BeginStore(path, {position, {kBlock, state_bytes_}, PathId{{7}}});
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
  // The ticket of a read that has ended well.
  uint64_t Fetch(RecordStore& store, const std::vector<TokenId>& tokens) {
    const PromptPath path(root_, tokens);
    const auto plan = store.Find(path, 0, path.size());
    const uint64_t ticket = plan ? store.Fetch(*plan, {kBlock, kState}) : 0;
    while (ticket != 0) {
      const RecordStore::News news = store.Poll();
      if (!news.fetched.empty()) return news.fetched[0].status.ok() ? ticket : 0;
      std::this_thread::yield();
    }
    return 0;
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
  int64_t keeps_ms_ = 0;
  size_t state_bytes_ = kState;
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

// Without recurrent state: another server stores a branch of its own from the beginning, and the
// marks that both have lead to that from now on. What continues the first one is not lost.
TEST_F(SharedStoreTest, ABranchOfAnotherServerForgetsNothing) {
  state_bytes_ = 0;
  const auto first = Open(), second = Open();
  const auto stem = Tokens(1, 640);
  const auto branch = [&](size_t at, uint64_t seed, size_t more) {
    std::vector<TokenId> tokens(stem.begin(), stem.begin() + ptrdiff_t(at));
    for (const TokenId token : Tokens(seed, more)) tokens.push_back(token);
    return tokens;
  };
  ASSERT_TRUE(Store(*first, stem, 640));
  for (uint64_t i = 0; i < 20; ++i)
    ASSERT_TRUE(Store(*first, branch(640, 1000 * (i + 1), 64), 704));
  ASSERT_TRUE(Store(*second, branch(320, 77'777, 100), 420)) << "it has not looked";
  EXPECT_TRUE(Look(*first, branch(320, 88'888, 100)).gone.empty());
  EXPECT_EQ(first->stats().records, 22u);
  EXPECT_EQ(Deepest(*first, branch(640, 5000, 64)), 704);
  EXPECT_EQ(Deepest(*first, branch(320, 77'777, 100)), 420);
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

// What is in memory is not looked up, so a home that lets go of what is not looked up may have lost
// what a new record would continue: then nobody could read that.
TEST_F(SharedStoreTest, NothingContinuesWhatTheHomeMayHaveLetGo) {
  std::atomic<int64_t> now_ms = 1000;
  std::atomic<int> looks = 0;
  std::atomic<bool> down = false;
  keeps_ms_ = 24 * 3600 * 1000;
  limits_.steady_ms = [&] { return now_ms.load(); };
  limits_.retry_ms = 1;
  const auto store = Open([&](const std::string& call, const std::string&) {
    looks += call == "look";
    return down && call != "write" ? Internal("no answer") : OkStatus();
  });
  const auto system = Tokens(1, 128);
  const auto talk = [&](uint64_t i) {
    auto tokens = system;
    for (const TokenId token : Tokens(1000 + 1000 * i, 64)) tokens.push_back(token);
    return tokens;
  };
  const auto begin_of = [&](uint64_t i) {
    std::lock_guard lock(server_->mutex);
    const auto name = server_->names.find(PromptPath(root_, talk(i)).At(192));
    return name != server_->names.end() ? server_->records.at(name->second).facts.begin : -1;
  };
  ASSERT_TRUE(Store(*store, system, 128));
  ASSERT_TRUE(Store(*store, talk(1), 192));
  EXPECT_EQ(looks, 0) << "it was written a moment ago";
  now_ms += keeps_ms_ / 2;
  ASSERT_TRUE(Store(*store, talk(2), 192));
  EXPECT_EQ(begin_of(2), 128);
  ASSERT_TRUE(Store(*store, talk(3), 192));
  EXPECT_EQ(looks, 1) << "for a while all know that it is there";
  now_ms += 2 * keeps_ms_;
  {
    std::lock_guard lock(server_->mutex);
    server_->names.clear();
    server_->records.clear();
  }
  ASSERT_TRUE(Store(*store, talk(4), 192));
  EXPECT_EQ(begin_of(4), 0) << "all of it, as what it would continue is gone";
  now_ms += keeps_ms_;
  down = true;
  EXPECT_FALSE(Store(*store, talk(5), 192)) << "nobody knows whether it can be continued";
  down = false;
}

// All of it was handed over, and it is not there yet: a reset takes it, too.
TEST_F(SharedStoreTest, AResetTakesWhatIsAlmostWritten) {
  std::atomic<bool> may_end = false;
  const auto store = Open([&](const std::string& call, const std::string&) {
    while (call == "commit" && !may_end) std::this_thread::yield();
    return OkStatus();
  });
  const auto tokens = Tokens(1, 128);
  const PromptPath path(root_, tokens);
  const auto draft = store->BeginStore(path, {128, {kBlock, state_bytes_}, PathId{{7}}});
  ASSERT_TRUE(draft.has_value());
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    store->AddPart(std::vector<std::byte>(part.bytes));
  }
  store->Forget(&root_);
  may_end = true;
  while (!store->settled()) (void)store->Poll();
  EXPECT_EQ(Deepest(*store, tokens), 0);
}

// What is wrong with one direction leaves the other alone, is tried as it failed, and takes one
// line in the log for each change.
TEST_F(SharedStoreTest, AWriteFaultLeavesReadsAlone) {
  std::atomic<bool> full = false;
  std::atomic<int> tries = 0;
  limits_.retry_ms = 1;
  const auto store = Open([&](const std::string& call, const std::string&) {
    const bool writes = call == "write" || call == "try write";
    tries += call == "try write";
    return full && writes ? Internal("Redis says: OOM") : OkStatus();
  });
  const auto system = Tokens(1, 128);
  ASSERT_TRUE(Store(*store, system, 128));
  full = true;
  EXPECT_FALSE(Store(*store, Tokens(1000, 128), 128));
  EXPECT_TRUE(store->stats().failing);
  EXPECT_FALSE(store->MayStore());
  EXPECT_TRUE(server_->unfinished.empty());
  for (int i = 0; i < 100; ++i) {
    (void)Look(*store, system);
    EXPECT_EQ(Deepest(*store, system), 128);
    EXPECT_NE(Fetch(*store, system), 0u);
  }
  EXPECT_EQ(store->stats().looks_failed, 0u);
  EXPECT_EQ(store->stats().fetches, 100u);
  EXPECT_EQ(store->stats().stores_failed, 1u) << "nothing is written while it is known to fail";
  while (tries < 5) std::this_thread::yield();
  EXPECT_EQ(store->write_changes(), 1u) << "one line in the log";
  full = false;
  while (!store->MayStore()) (void)store->Poll();
  EXPECT_EQ(store->write_changes(), 2u);
  EXPECT_EQ(store->read_changes(), 0u);
  EXPECT_TRUE(Store(*store, Tokens(1000, 128), 128));
}

TEST_F(SharedStoreTest, AReadFaultLeavesWritesAlone) {
  std::atomic<bool> bad = true;
  const auto store = Open([&](const std::string& call, const std::string&) {
    return bad && (call == "look" || call == "try read") ? Internal("no route") : OkStatus();
  });
  limits_.retry_ms = 1;
  (void)Look(*store, Tokens(1, 128));
  EXPECT_EQ(store->Look(root_, Tokens(1, 128)), 0u) << "nobody waits for it";
  EXPECT_TRUE(Store(*store, Tokens(1, 128), 128));
  EXPECT_EQ(store->read_changes(), 1u);
}

// The home answers slowly: who waits in a queue is answered in time, and the home is not failing.
TEST_F(SharedStoreTest, AQueueIsNoFailure) {
  std::atomic<int64_t> steady = 1000;
  std::mutex mutex;
  std::condition_variable changed;
  int may = 0;
  std::vector<std::string> asked;
  limits_.steady_ms = [&] { return steady.load(); };
  limits_.timeout_ms = 1000;
  const auto store = Open([&](const std::string& call, const std::string& size) {
    std::unique_lock lock(mutex);
    if (call != "look") return OkStatus();
    asked.push_back(size);
    changed.notify_all();
    changed.wait(lock, [&] { return may > 0; });
    --may;
    return OkStatus();
  });
  const auto answer = [&](int count) {
    std::lock_guard lock(mutex);
    may = count;
    changed.notify_all();
  };
  ASSERT_NE(store->Look(root_, Tokens(0, 200)), 0u);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asked.size() == 1; });
  }
  for (uint64_t i = 1; i < 64; ++i) ASSERT_NE(store->Look(root_, Tokens(i, 200)), 0u);
  EXPECT_EQ(store->Look(root_, Tokens(99, 200)), 0u) << "there is a bound";
  steady += 500;
  EXPECT_EQ(store->Poll().looked.size(), 64u) << "each in time";
  EXPECT_FALSE(store->stats().failing);
  answer(2);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return asked.size() == 2 && may == 0; });
  EXPECT_EQ(asked[1], "63") << "all that waited, at once";
  lock.unlock();
  for (int i = 0; i < 64; ++i) (void)store->Poll();
  EXPECT_FALSE(store->stats().failing);
  EXPECT_EQ(store->read_changes(), 0u);
  answer(1000);
}

// A line that gives every load a share: each takes longer than it would alone, and none is a
// failure as long as something comes.
TEST_F(SharedStoreTest, LoadsThatShareALineAreSlowAndNoFailure) {
  std::atomic<int64_t> steady = 1000;
  limits_.steady_ms = [&] { return steady.load(); };
  limits_.timeout_ms = 1000;
  limits_.reader_count = 1;
  std::mutex mutex;
  std::condition_variable changed;
  int may = 0;
  const auto store = Open([&](const std::string& call, const std::string&) {
    std::unique_lock lock(mutex);
    if (call != "read") return OkStatus();
    changed.wait(lock, [&] { return may > 0; });
    --may;
    return OkStatus();
  });
  const auto tokens = Tokens(1, 128);
  ASSERT_TRUE(Store(*store, tokens, 128));
  const PromptPath path(root_, tokens);
  const auto plan = store->Find(path, 0, 128);
  ASSERT_TRUE(plan);
  ASSERT_NE(store->Fetch(*plan, {kBlock, kState}), 0u);
  const auto part = [&] {
    std::unique_lock lock(mutex);
    ++may;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return may == 0; });
  };
  size_t fetched = 0;
  for (int i = 0; i < 3; ++i) {
    fetched += store->Poll().fetched.size();
    steady += 900;  // less than a time-out between two parts, more than it in all
    part();
  }
  while (fetched == 0) fetched += store->Poll().fetched.size();
  EXPECT_EQ(fetched, 1u);
  EXPECT_FALSE(store->stats().failing);
  EXPECT_EQ(store->read_changes(), 0u);
}

// A reset that the home cannot carry out now is carried out later; nobody finds what it is about.
TEST_F(SharedStoreTest, AResetThatFailsIsTriedAgainAndHidesAtOnce) {
  std::atomic<bool> bad = true;
  limits_.retry_ms = 1;
  const auto store = Open([&](const std::string& call, const std::string&) {
    return bad && call == "forget" ? Internal("no permission") : OkStatus();
  });
  const auto tokens = Tokens(1, 128);
  ASSERT_TRUE(Store(*store, tokens, 128));
  const PathId other = key_.NamespaceOf("model", "another tenant");
  store->Forget(&root_);
  EXPECT_EQ(Deepest(*store, tokens), 0);
  EXPECT_EQ(store->Look(root_, tokens), 0u);
  EXPECT_NE(store->Look(other, tokens), 0u) << "others look";
  for (int i = 0; i < 50; ++i) {
    (void)store->Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(store->write_changes(), 0u) << "that says nothing of other writes";
  EXPECT_EQ(store->Look(root_, tokens), 0u);
  {
    std::lock_guard lock(server_->mutex);
    EXPECT_EQ(server_->records.size(), 1u);
  }
  bad = false;
  while (store->Look(root_, tokens) == 0) {
    (void)store->Poll();
    std::this_thread::yield();
  }
  std::lock_guard lock(server_->mutex);
  EXPECT_TRUE(server_->records.empty());
}

// While keys are changed a store reads what either key names, in one question, writes with the
// current one, and forgets both.
TEST_F(SharedStoreTest, AStoreOfTwoKeysReadsBothAndWritesOne) {
  const auto tokens = Tokens(1, 192), other = Tokens(2, 128);
  const auto before = Open();
  ASSERT_TRUE(Store(*before, tokens, 192));
  ASSERT_TRUE(Store(*before, other, 128));

  const auto server = std::make_shared<MemoryServer>();  // what the new key sees of it
  const StateKeys keys(StateKey::Of({6}), key_);
  const PathId roots[] = {keys.current().NamespaceOf("model", "tenant"), root_};
  auto opened =
      RecordStore::Open(std::make_unique<RotatedHome>(std::make_unique<MemoryHome>(server),
                                                      std::make_unique<MemoryHome>(server_)),
                        limits_, keys);
  ASSERT_TRUE(opened.ok());
  RecordStore& store = **opened;
  EXPECT_EQ(store.NamespaceOf("model", "tenant"), roots[0]);
  EXPECT_EQ(store.NamespaceBefore("model", "tenant"), roots[1]);
  for (const auto& asked : {tokens, other}) {
    const uint64_t ticket = store.Look(roots, asked);
    ASSERT_NE(ticket, 0u);
    RecordStore::News news;
    while (news.looked.empty()) news = store.Poll();
    EXPECT_EQ(news.looked, std::vector<uint64_t>{ticket}) << "one question, one answer";
    EXPECT_EQ(Deepest(store, asked), static_cast<int32_t>(asked.size()));
  }
  EXPECT_NE(Fetch(store, tokens), 0u);

  const PromptPath path(roots[0], tokens);
  const auto draft = store.BeginStore(path, {192, {kBlock, state_bytes_}, PathId{{7}}});
  ASSERT_TRUE(draft.has_value());
  EXPECT_TRUE(draft->facts.parent.empty()) << "it continues nothing of the old key";
  for (const RecordLayout::Part& part : draft->layout.parts()) {
    store.AddPart(std::vector<std::byte>(part.bytes));
  }
  while (!store.settled()) (void)store.Poll();
  EXPECT_EQ(server->records.size(), 1u);
  EXPECT_EQ(server_->records.size(), 2u);

  for (const PathId& root : roots) store.Forget(&root);
  EXPECT_EQ(store.Look(roots, tokens), 0u) << "it is being forgotten";
  const auto left = [](MemoryServer& at) {
    const std::lock_guard lock(at.mutex);
    return at.records.size();
  };
  while (left(*server) + left(*server_) > 0) (void)store.Poll();
}

}  // namespace
}  // namespace reprise
