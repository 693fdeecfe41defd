// SPDX-License-Identifier: Apache-2.0
// Proves that of values which are not those that were stored (changed, cut, lengthened, swapped,
// stale, somebody else's, gone) nothing is ever taken for state. REPRISE_VALUE_CASES: how many are
// tried.
#include "tier/redis/redis_home.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tier/record_store.h"
#include "tier/redis/fake_redis.h"

namespace reprise {
namespace {

// Small: there are many cases.
constexpr size_t kBlock = 600, kState = 400;

std::byte ByteOf(uint64_t seed, size_t part, size_t i) {
  return static_cast<std::byte>(RandomAt(seed + part * 1000, i));
}

using Values = std::map<std::string, std::string>;

std::vector<TokenId> TokensOf(uint64_t seed) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 150; ++i) tokens.push_back(static_cast<TokenId>(RandomAt(seed, i) % 100));
  return tokens;
}

class RedisHomeTest : public testing::Test {
 protected:
  std::unique_ptr<RedisHome> HomeOf(const StateKey& key, int timeout_ms = 30'000) {
    RedisHome::Options options;
    options.address.host = "127.0.0.1";
    options.address.port = redis_.port();
    options.timeout = std::chrono::milliseconds(timeout_ms);
    return std::make_unique<RedisHome>(options, key);
  }
  RecordFacts FactsOf(const PromptPath& path) const {
    RecordFacts facts;
    facts.space = path.grid(0);
    facts.model = key_.NamespaceOf("model", "");
    facts.base = path.grid(2);
    facts.path = path.At(150);
    facts.end = 150;
    facts.block_count = 3;
    facts.block_bytes = kBlock;
    facts.state_bytes = kState;
    facts.created_ms = 1;
    return facts;
  }

  // What a store holds after one has written the record of these tokens, with content by `seed`.
  Values Written(const StateKey& key, const char* tenant, uint64_t tokens, uint64_t seed) {
    redis_.Set({});
    const PathId root = key.NamespaceOf("model", tenant);
    const std::vector<TokenId> all = TokensOf(tokens);
    const PromptPath path(root, all);
    RecordFacts facts = FactsOf(path);
    facts.model = key.NamespaceOf("model", "");
    const auto home = HomeOf(key);
    auto sink = home->Create(home->NameFor(facts), facts);
    EXPECT_TRUE(sink.ok()) << sink.status().message();
    const RecordLayout layout(facts);
    for (size_t i = 0; i < layout.parts().size(); ++i) {
      std::vector<std::byte> part(layout.parts()[i].bytes);
      for (size_t j = 0; j < part.size(); ++j) part[j] = ByteOf(seed, i, j);
      EXPECT_TRUE((*sink)->Append(part).ok());
    }
    EXPECT_TRUE((*sink)->Commit().ok());
    return redis_.values();
  }

  enum class Read { kNothing, kRight, kWrong };
  // What one finds who looks for the tokens, as tier/transfers.h reads it: all of the state with
  // that content, or something else.
  Read Find(RedisHome& home, const PromptPath& path, uint64_t seed) {
    const PromptPath* paths[] = {&path};
    auto seen = home.Look(paths);
    if (!seen.ok()) return Read::kNothing;
    for (const RecordHome::Seen& one : seen->front()) {
      auto source = home.Open(one.name);
      if (!source.ok() || (*source)->facts().path != path.At(150)) continue;
      const RecordLayout& layout = (*source)->layout();
      std::vector<size_t> all(layout.parts().size());
      for (size_t i = 0; i < all.size(); ++i) all[i] = i;
      (*source)->Want(all);
      bool whole = true, right = true;
      for (const size_t i : all) {
        std::vector<std::byte> part(layout.parts()[i].bytes);
        whole = whole && (*source)->ReadPart(i, part).ok();
        for (size_t j = 0; whole && j < part.size(); ++j) right &= part[j] == ByteOf(seed, i, j);
      }
      if (whole) return right ? Read::kRight : Read::kWrong;
    }
    return Read::kNothing;
  }

  FakeRedis redis_;
  const StateKey key_ = StateKey::Of({5});
};

TEST_F(RedisHomeTest, NothingButWhatWasStoredIsTaken) {
  const char* wanted = std::getenv("REPRISE_VALUE_CASES");
  const uint64_t cases = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 3000;
  // What others have, or had: an earlier record of the same tokens, one of other tokens, another
  // tenant's of the same, and one under another secret. All are whole.
  std::vector<std::string> others;
  for (const Values& values :
       {Written(key_, "tenant", 1, 1), Written(key_, "tenant", 2, 3),
        Written(key_, "someone else", 1, 4), Written(StateKey::Of({6}), "tenant", 1, 5)}) {
    for (const auto& [name, value] : values) others.push_back(value);
  }
  const Values stored = Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  ASSERT_EQ(Find(*home, path, 2), Read::kRight);
  std::vector<std::string> keys;
  for (const auto& [name, value] : stored) keys.push_back(name);
  Rng rng(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.Below(n)); };
  const auto one_of = [&](const std::vector<std::string>& all) { return all[below(all.size())]; };
  uint64_t refused = 0, right = 0;
  for (uint64_t i = 0; i < cases; ++i) {
    Values values = stored;
    std::string& value = values[one_of(keys)];
    switch (i % 8) {
      case 0:  // a bit
        value[below(value.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 1:  // some bytes
        for (size_t n = 1 + below(16); n > 0; --n) {
          value[below(value.size())] = static_cast<char>(rng.Next());
        }
        break;
      case 2:  // cut
        value.resize(below(value.size()));
        break;
      case 3:  // longer
        value.append(1 + below(100), static_cast<char>(rng.Next()));
        break;
      case 4:  // another value of this record
        value = stored.at(one_of(keys));
        break;
      case 5:  // somebody else's
        value = one_of(others);
        break;
      case 6: {  // a piece of that
        const std::string other = one_of(others);
        const size_t from = below(std::min(value.size(), other.size()));
        const size_t size = 1 + below(std::min(value.size(), other.size()) - from);
        value.replace(from, size, other, from, size);
        break;
      }
      case 7:  // gone
        values.erase(one_of(keys));
        break;
    }
    const bool same = values == stored;
    redis_.Set(std::move(values));
    const Read read = Find(*home, path, 2);
    ASSERT_NE(read, Read::kWrong) << "case " << i;
    ASSERT_TRUE(read == Read::kRight || !same) << "case " << i;
    ++(read == Read::kRight ? right : refused);
  }
  std::printf("%llu values: %llu not taken, %llu changed nothing that is read, 0 taken wrongly\n",
              static_cast<unsigned long long>(cases), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(right));
  EXPECT_GT(refused, cases / 2);
  redis_.Set(stored);
  EXPECT_EQ(Find(*home, path, 2), Read::kRight);
}

// A record that is whole, but not the one that is asked for, under its keys.
TEST_F(RedisHomeTest, WholeRecordsOfOthersAreNotTaken) {
  const Values stored = Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  const auto kind_of = [](const std::string& name) {  // with the number, of a part
    const size_t at = name.find(':', name.find(':', std::strlen("reprise:1:")) + 1) + 1;
    const size_t number = name.rfind(':');
    return name[at] == 'p' ? name.substr(at, 1) + name.substr(number) : name.substr(at, 1);
  };
  for (const Values& other : {Written(key_, "tenant", 2, 3), Written(key_, "someone else", 1, 4),
                              Written(StateKey::Of({6}), "tenant", 1, 5)}) {
    Values values;
    for (const auto& [name, value] : stored) {
      const auto theirs = std::find_if(other.begin(), other.end(), [&](const auto& one) {
        return kind_of(one.first) == kind_of(name);
      });
      ASSERT_NE(theirs, other.end()) << name;
      // What leads to the record stays: it is found under its own name, with their content.
      const bool leads = kind_of(name) == "r" || kind_of(name) == "i";
      values[name] = leads ? value : theirs->second;
    }
    redis_.Set(values);
    EXPECT_EQ(Find(*home, path, 2), Read::kNothing);
  }
}

// A Redis that is full, may only be read, cannot save, or forbids writing goes on being read. What
// was written of a record that could not be finished does not stay.
TEST_F(RedisHomeTest, ARedisThatCannotBeWrittenToIsReadAndKeepsNoParts) {
  const Values stored = Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1), others = TokensOf(2);
  const PromptPath path(root, tokens), other(root, others);
  const RecordFacts facts = FactsOf(other);
  struct Case {
    const char* error;
    bool removes;  // whether UNLINK works
  };
  for (const Case& one : {Case{"OOM command not allowed when used memory > 'maxmemory'.", true},
                          Case{"READONLY You can't write against a read only replica.", false},
                          Case{"MISCONF Redis is configured to save RDB snapshots", false},
                          Case{"NOPERM this user has no permissions to run the command", false}}) {
    redis_.Set(stored);
    auto sink = home->Create(home->NameFor(facts), facts);
    ASSERT_TRUE(sink.ok());
    const RecordLayout layout(facts);
    std::vector<std::byte> part(layout.parts()[0].bytes);
    ASSERT_TRUE((*sink)->Append(part).ok());
    ASSERT_EQ(redis_.values().size(), stored.size() + 1);
    redis_.Refuse([&](const std::string& verb) {
      const bool writes = verb == "PSETEX" || verb == "SETBIT" || verb == "PEXPIRE";
      return writes || (verb == "UNLINK" && !one.removes) ? std::string(one.error) : "";
    });
    EXPECT_FALSE((*sink)->Append(part).ok()) << one.error;
    sink->reset();
    EXPECT_EQ(Find(*home, path, 2), Read::kRight) << one.error;
    EXPECT_TRUE(home->TryRead("").ok());
    EXPECT_FALSE(home->TryWrite(1000).ok());
    if (one.removes) {
      EXPECT_EQ(redis_.values(), stored);
    }
    redis_.Refuse(nullptr);
    EXPECT_TRUE(home->TryWrite(1000).ok());
    EXPECT_EQ(redis_.values(), stored) << one.error << ": nothing is left";
  }
}

// The connection breaks in the middle of a record: its parts are removed over another one.
TEST_F(RedisHomeTest, ABrokenConnectionLeavesNoParts) {
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  const RecordFacts facts = FactsOf(path);
  auto sink = home->Create(home->NameFor(facts), facts);
  ASSERT_TRUE(sink.ok());
  std::vector<std::byte> part(RecordLayout(facts).parts()[0].bytes);
  ASSERT_TRUE((*sink)->Append(part).ok());
  ASSERT_EQ(redis_.values().size(), 1u);
  redis_.HangUp();
  EXPECT_FALSE((*sink)->Append(part).ok());
  sink->reset();
  EXPECT_TRUE(redis_.values().empty());
}

// Many questions at once take as many exchanges as one does.
TEST_F(RedisHomeTest, ABurstOfLooksTakesFewExchanges) {
  (void)Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  std::vector<std::vector<TokenId>> tokens;
  for (uint64_t i = 0; i < 64; ++i) tokens.push_back(TokensOf(i));
  std::vector<PromptPath> paths;
  for (const auto& one : tokens) paths.emplace_back(root, one);
  std::vector<const PromptPath*> all;
  for (const PromptPath& one : paths) all.push_back(&one);
  const auto exchanges = [&](std::span<const PromptPath* const> some) {
    const int before = redis_.turns();
    auto seen = home->Look(some);
    EXPECT_TRUE(seen.ok());
    for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ((*seen)[i].size(), some[i] == all[1]);
    return redis_.turns() - before;
  };
  (void)exchanges(std::span(all).first(2));
  EXPECT_LE(exchanges(std::span(all).first(2)), 4);
  EXPECT_LE(exchanges(all), 4);
}

// However many connections are there that nobody answers on: one is tried.
TEST_F(RedisHomeTest, AServerThatHangsIsWaitedForOnce) {
  (void)Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_, 50);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  const PromptPath* paths[] = {&path};
  std::vector<std::unique_ptr<RecordSource>> open;
  for (int i = 0; i < 8; ++i) {
    auto seen = home->Look(paths);
    ASSERT_TRUE(seen.ok());
    auto one = home->Open(seen->front().front().name);
    ASSERT_TRUE(one.ok());
    open.push_back(std::move(*one));
  }
  open.clear();  // eight that are idle
  redis_.Silence(true);
  const int before = redis_.heard();
  EXPECT_FALSE(home->Look(paths).ok());
  EXPECT_LE(redis_.heard() - before, 1);
  const int then = redis_.heard();
  EXPECT_FALSE(home->TryRead("").ok());
  EXPECT_LE(redis_.heard() - then, 1);
  redis_.Silence(false);
  EXPECT_TRUE(home->TryRead("").ok());
  EXPECT_EQ(Find(*home, path, 2), Read::kRight);
}

// Sentinels say who the master is: one that hangs and one that knows nothing are passed over, and
// after a failover the next connection leads to the new master.
TEST_F(RedisHomeTest, SentinelsLeadToTheMasterOfTheMoment) {
  const Values stored = Written(key_, "tenant", 1, 2);
  FakeRedis silent, ignorant, knowing, heir;
  silent.Silence(true);
  knowing.SetMaster(redis_.port());
  heir.Set(stored);
  RedisHome::Options options;
  for (const FakeRedis* one : {&silent, &ignorant, &knowing}) {
    options.address.sentinels.push_back({"127.0.0.1", one->port()});
  }
  options.address.master = "mymaster";
  options.timeout = std::chrono::milliseconds(4000);  // a quarter of it for the one that hangs
  const auto open = std::make_unique<RedisHome>(options, key_);
  EXPECT_TRUE(open->TryRead("").ok());
  silent.Silence(false);
  options.address.password = "pw";  // that nobody wants
  EXPECT_FALSE(RedisHome(options, key_).TryRead("").ok()) << "the master refuses it";
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  EXPECT_EQ(Find(*open, path, 2), Read::kRight);
  EXPECT_GT(redis_.heard(), 0);
  // It goes; for a moment they still name it, then one that is not the master yet.
  redis_.SetReplica(true);
  EXPECT_FALSE(open->TryRead("").ok());
  heir.SetReplica(true);
  knowing.SetMaster(heir.port());
  EXPECT_FALSE(open->TryWrite(100).ok());
  EXPECT_EQ(heir.values(), stored) << "nothing is written to who is not the master";
  heir.SetReplica(false);
  EXPECT_TRUE(open->TryWrite(100).ok());
  EXPECT_EQ(Find(*open, path, 2), Read::kRight);
  knowing.SetMaster(0);
  EXPECT_FALSE(open->TryRead("").ok()) << "nobody knows";
}

// All keys of a record live as long as its head: who finds one of which half the time is over
// renews them together, parts too.
TEST_F(RedisHomeTest, AFoundRecordIsRenewedWhole) {
  const Values stored = Written(key_, "tenant", 1, 2);
  const auto home = HomeOf(key_);
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  const PromptPath* paths[] = {&path};
  for (const int64_t hours : {13, 11}) {
    redis_.SetTimeLeft(hours * 3'600'000);
    redis_.TakeRenewed();
    ASSERT_TRUE(home->Look(paths).ok());
    std::set<std::string> all;
    for (const auto& [name, value] : stored) all.insert(name);
    EXPECT_EQ(redis_.TakeRenewed(), hours < 12 ? all : std::set<std::string>());
  }
}

// A tenant's reset removes its keys, slice by slice, and no others.
TEST_F(RedisHomeTest, AResetGoesInSlicesAndTakesOnesOwn) {
  Values both = Written(key_, "someone else", 1, 4);
  const Values theirs = both;
  const Values mine = Written(key_, "tenant", 1, 2);
  both.insert(mine.begin(), mine.end());
  for (int i = 0; i < 5000; ++i) both["foreign:" + std::to_string(i)] = "x";
  redis_.Set(both);
  const auto home = HomeOf(key_);
  const PathId other = key_.NamespaceOf("model", "someone else");
  const PathId root = key_.NamespaceOf("model", "tenant");
  const std::vector<TokenId> tokens = TokensOf(1);
  const PromptPath path(root, tokens);
  std::string cursor;
  int slices = 0;
  do {
    ASSERT_TRUE(home->Forget(other, &cursor).ok());
    EXPECT_EQ(Find(*home, path, 2), Read::kRight) << "in the middle of it";
  } while (!cursor.empty() && ++slices < 100);
  EXPECT_GE(slices, 4);
  const Values left = redis_.values();
  EXPECT_EQ(left.size(), both.size() - theirs.size());
  for (const auto& [name, value] : theirs) EXPECT_FALSE(left.contains(name));
}

}  // namespace
}  // namespace reprise
