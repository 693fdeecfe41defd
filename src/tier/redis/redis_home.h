// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tier/home.h"
#include "tier/redis/redis_address.h"
#include "tier/redis/redis_link.h"
#include "tier/state_key.h"

namespace reprise {

// Records in a Redis that several servers share. Everything is found by ids of paths, which nobody
// without the secret can compute, and nothing is used that does not open with it.
//
//   reprise:1:<id of the secret>:<namespace>:
//     r:<path>          -> name of the record that ends there, or has a mark there
//     i:<path>          -> bit n of 64: records end n tokens behind this end of a block
//     h:<name>          -> the head of a record
//     p:<name>:<part>   -> method (a byte), the part, sealed, and its tag
//
// A record is written parts first, then its head, then what leads to it; so who finds it finds all
// of it, unless Redis has let something go since: that is a miss. Two servers that store the same
// path write two records, and the later one is found. Everything expires some time after its last
// use; how much Redis keeps is Redis's affair (maxmemory, allkeys-lru).
//
// Thread safety: all calls from any thread; each has a connection of its own while it runs.
class RedisHome : public RecordHome {
 public:
  struct Options {
    RedisAddress address;
    std::string ca_file;                      // PEM; empty: the system's
    std::chrono::milliseconds timeout{1000};  // of one exchange
    std::chrono::milliseconds expire{24 * 3600 * 1000};
    bool compress = false;  // what is written; what is read may be either
  };
  // Does not connect. REQUIRES: a secret.
  RedisHome(const Options& options, const StateKey& key);
  ~RedisHome() override;

  const char* kind() const override { return "store"; }
  std::string where() const override { return options_.address.Show(); }
  bool shared() const override { return true; }
  Result<std::vector<Seen>> Look(const PromptPath& path) override;
  Status Probe() override;
  std::string NameFor(const RecordFacts& facts) override;
  Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                             const RecordFacts& facts) override;
  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override;
  void Remove(const std::string& name) override;
  void Touch(const std::string&) override {}  // reading it was that
  Status Forget(const PathId& space) override;

 private:
  class Sink;
  class Source;
  using LinkPtr = std::unique_ptr<RedisLink>;

  // A connection that works, with a time-out from now on. Give it back if it still does.
  Result<LinkPtr> Borrow();
  void GiveBack(LinkPtr link);
  RedisLink::Deadline DeadlineNow() const {
    return std::chrono::steady_clock::now() + options_.timeout;
  }
  // "<namespace>:r:<path>": a name is "<namespace>:<random>".
  std::string PathKey(char kind, const PathId& space, const PathId& path) const;
  std::string NameKey(char kind, const std::string& name) const;
  std::string PartKey(const std::string& name, size_t part) const;
  Result<std::vector<std::string>> NamesAlong(RedisLink& link, const PromptPath& path) const;
  Result<std::vector<Seen>> ReadHeads(RedisLink& link, std::span<const std::string> names) const;
  Status ForgetMatching(const std::string& pattern);

  const Options options_;
  const StateKey key_;
  const std::string prefix_;         // "reprise:1:<id of the secret>:"
  const std::string expire_ms_;      // as Redis wants it
  std::atomic<int> forgetting_ = 0;  // what is being removed is not found any more
  std::mutex mutex_;                 // guards what follows
  std::vector<LinkPtr> idle_;
};

}  // namespace reprise
