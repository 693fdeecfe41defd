// SPDX-License-Identifier: Apache-2.0
// Proves that of values which are not those that were stored (changed, cut, lengthened, swapped,
// stale, somebody else's, gone) nothing is ever taken for state. REPRISE_VALUE_CASES: how many are
// tried.
#include "tier/redis/redis_home.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace reprise {
namespace {

// Small: there are many cases.
constexpr size_t kBlock = 600, kState = 400;

// As much of a Redis as a home needs, with its values in hand.
class FakeRedis {
 public:
  FakeRedis() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 64), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Accept(); });
  }
  ~FakeRedis() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  uint16_t port() const { return port_; }
  std::map<std::string, std::string> values() {
    std::lock_guard lock(mutex_);
    return values_;
  }
  void Set(std::map<std::string, std::string> values) {
    std::lock_guard lock(mutex_);
    values_ = std::move(values);
  }

 private:
  // One connection after the other: a home that works alone has one at a time.
  void Accept() {
    for (;;) {
      const int peer = ::accept(listener_, nullptr, nullptr);
      if (peer < 0) return;
      const int on = 1;
      ::setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Serve(peer);
      ::close(peer);
    }
  }

  void Serve(int peer) {
    std::string in;
    const auto line = [&]() -> std::optional<std::string> {
      size_t end;
      while ((end = in.find("\r\n")) == in.npos) {
        if (!More(peer, &in)) return std::nullopt;
      }
      std::string text = in.substr(0, end);
      in.erase(0, end + 2);
      return text;
    };
    for (;;) {
      const auto head = line();
      if (!head) return;
      std::vector<std::string> words(std::stoul(head->substr(1)));
      for (std::string& word : words) {
        const auto size = line();
        if (!size) return;
        const size_t bytes = std::stoul(size->substr(1)) + 2;
        while (in.size() < bytes) {
          if (!More(peer, &in)) return;
        }
        word = in.substr(0, bytes - 2);
        in.erase(0, bytes);
      }
      const std::string answer = Answer(words);
      if (::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }
  static bool More(int peer, std::string* in) {
    char bytes[65536];
    const ssize_t got = ::recv(peer, bytes, sizeof(bytes), 0);
    if (got > 0) in->append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  static std::string Bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  std::string Answer(const std::vector<std::string>& words) {
    std::lock_guard lock(mutex_);
    const std::string& verb = words[0];
    if (verb == "PSETEX") values_[words[1]] = words[3];
    if (verb == "PSETEX" || verb == "SELECT" || verb == "PING") return "+OK\r\n";
    const auto at = values_.find(words[1]);
    if (verb == "GETRANGE") {
      if (at == values_.end()) return Bulk("");
      const size_t end = std::stoul(words[3]) + 1;
      return Bulk(at->second.substr(0, end));
    }
    if (verb == "GETEX") return at == values_.end() ? "$-1\r\n" : Bulk(at->second);
    if (verb == "SETBIT") {
      std::string& bits = values_[words[1]];
      const size_t bit = std::stoul(words[2]);
      if (bits.size() <= bit / 8) bits.resize(bit / 8 + 1);
      bits[bit / 8] = static_cast<char>(bits[bit / 8] | 0x80 >> bit % 8);
    }
    return ":1\r\n";
  }

  int listener_ = -1;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::thread thread_;
};

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
  std::unique_ptr<RedisHome> HomeOf(const StateKey& key) {
    RedisHome::Options options;
    options.address.host = "127.0.0.1";
    options.address.port = redis_.port();
    options.timeout = std::chrono::seconds(30);
    return std::make_unique<RedisHome>(options, key);
  }

  // What a store holds after one has written the record of these tokens, with content by `seed`.
  Values Written(const StateKey& key, const char* tenant, uint64_t tokens, uint64_t seed) {
    redis_.Set({});
    const PathId root = key.NamespaceOf("model", tenant);
    const std::vector<TokenId> all = TokensOf(tokens);
    const PromptPath path(root, all);
    RecordFacts facts;
    facts.space = root;
    facts.model = key.NamespaceOf("model", "");
    facts.base = path.grid(2);
    facts.path = path.At(150);
    facts.end = 150;
    facts.block_count = 3;
    facts.block_bytes = kBlock;
    facts.state_bytes = kState;
    facts.created_ms = 1;
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
    auto seen = home.Look(path);
    if (!seen.ok()) return Read::kNothing;
    for (const RecordHome::Seen& one : *seen) {
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

}  // namespace
}  // namespace reprise
