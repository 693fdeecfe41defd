// SPDX-License-Identifier: Apache-2.0
#pragma once

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
//     try:<random>      -> zeros, for a moment: whether writing works
//
// A record is written parts first, then its head, then what leads to it; so who finds it finds all
// of it, unless Redis has let something go since: that is a miss. Two servers that store the same
// path write two records, and the later one is found. Everything expires some time after its last
// use: who finds a record of which half of that time is over renews all of its keys together. Parts
// of a record that is not whole expire soon, should nobody be left to remove them. How much Redis
// keeps is Redis's affair (maxmemory, allkeys-lru).
//
// Reading takes no command that writes: it works on a Redis that is full or may only be read.
//
// Thread safety: all calls from any thread; each has a connection of its own while it runs. A call
// takes at most one time-out to get it, however many have gone stale.
class RedisHome : public RecordHome {
 public:
  struct Options {
    RedisAddress address;
    RedisLink::Tls tls;
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
  int64_t keeps_ms() const override { return options_.expire.count(); }
  Result<std::vector<std::vector<Seen>>> Look(std::span<const PromptPath* const> paths) override;
  Status TryRead(const std::string& name) override;
  Status TryWrite(size_t bytes) override;
  std::string NameFor(const RecordFacts& facts) override;
  Result<std::unique_ptr<RecordSink>> Create(const std::string& name,
                                             const RecordFacts& facts) override;
  Result<std::unique_ptr<RecordSource>> Open(const std::string& name) override;
  void Remove(const std::string& name) override;
  void Touch(const std::string&) override {}  // reading it was that
  Status Forget(const PathId& space, std::string* cursor) override;

 private:
  class Sink;
  class Source;
  using LinkPtr = std::unique_ptr<RedisLink>;

  // A connection, with a time-out from now on. Give it back if it still works.
  Result<LinkPtr> Borrow();
  void GiveBack(LinkPtr link);
  void DropIdle();
  // Of an exchange in which so many bytes of state come or go: lines are slow, and shared.
  RedisLink::Deadline DeadlineFor(size_t bytes = 0) const;
  // "<namespace>:r:<path>": a name is "<namespace>:<random>".
  std::string PathKey(char kind, const PathId& space, const PathId& path) const;
  std::string NameKey(char kind, const std::string& name) const;
  std::string PartKey(const std::string& name, size_t part) const;
  struct Found;  // along one path
  Status FindNames(RedisLink& link, std::span<const PromptPath* const> paths,
                   std::vector<Found>* all) const;
  Status ReadHeads(RedisLink& link, std::vector<Found>* all) const;
  Status Renew(RedisLink& link, std::span<const Found> all) const;
  void AddRenewals(RedisLink& link, const std::string& name, const RecordFacts& facts,
                   size_t* count) const;
  // Parts of records that are not whole and could not be removed when they were written.
  void RemoveLeft(RedisLink& link);

  const Options options_;
  const StateKey key_;
  const std::string prefix_;     // "reprise:1:<id of the secret>:"
  const std::string expire_ms_;  // as Redis wants it
  std::mutex mutex_;             // guards what follows
  std::vector<LinkPtr> idle_;
  std::vector<std::string> left_;  // keys
};

}  // namespace reprise
