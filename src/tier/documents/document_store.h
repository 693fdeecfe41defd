// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tier/documents/document.h"
#include "tier/folder/record_file.h"
#include "tier/guard/breaker.h"
#include "tier/guard/day_budget.h"
#include "tier/guard/day_file.h"
#include "tier/state_keys.h"

namespace reprise {

struct DocumentOptions {
  std::string path;  // made if it is not there
  uint64_t bytes_max = 0;
  uint64_t owner_bytes_max = 0;
  size_t owner_count_max = 0;
  uint64_t bytes_day_max = 0;        // written in any 24 hours; 0: no limit
  int64_t retry_ms = 60'000;         // after a failure of the disk it is tried so much later
  int64_t timeout_ms = 5000;         // nobody waits for the disk any longer
  std::function<int64_t()> wall_ms;  // tests; null: the system's
  std::function<int(const char* call)> fault;  // tests: asked before calls on the file system
};

// DocumentStore keeps documents of owners in a folder of its own, whole after kill -9, the latest
// ones within bounds. Nobody waits for the disk to write, and nobody longer than so long to read:
// threads of the store's do.
//
//   <32 hex>.doc   a document; its name is a keyed id of owner and name
//   day            what was written of a day's bytes (guard/day_file.h)
//   <32 hex>.tmp   one being written; removed at the start
//
// 1. An owner finds its own documents only. Files tell nobody without the key whose they are.
// 2. All documents together, those of an owner, what waits to be written and what is written a day
//    have a bound each. The oldest go first: of an owner that has too much, then of all. What is
//    not stored makes nothing go.
// 3. Whatever is wrong with a file or with the disk is a document that is not there. A file that
//    is not what it was is removed; one that cannot be read now stays, and may be read later.
// 4. After a failure nothing is written until a try has found that the disk works.
//
// Thread safety: all methods from any thread. One process a folder; that is the caller's care.
class DocumentStore {
 public:
  static constexpr size_t kQueueBytes = size_t{64} << 20;
  static constexpr size_t kCountMax = size_t{1} << 16;

  static Result<std::unique_ptr<DocumentStore>> Open(const DocumentOptions& options,
                                                     const StateKeys& keys);
  ~DocumentStore();  // writes what waits

  // What cannot be stored is counted and left out.
  void Put(std::string_view owner, std::string_view name, std::string content);
  std::optional<std::string> Get(std::string_view owner, std::string_view name);
  bool Remove(std::string_view owner, std::string_view name);
  // Waits until everything is on the disk, or the time is over (false).
  bool Settle(std::chrono::milliseconds timeout);

  struct Stats {
    size_t count = 0;
    uint64_t bytes = 0;
    uint64_t stored = 0;
    uint64_t left_out = 0;  // the disk failed, too much waited, or was written that day
    uint64_t damaged = 0;
    bool failing = false;  // nothing is written now
  };
  Stats stats() const;

 private:
  struct Entry {
    OwnerId owner{};
    uint64_t bytes = 0;
    uint64_t order = 0;
  };
  struct Held {
    uint64_t bytes = 0;
    std::map<uint64_t, std::string> ids;  // oldest first
  };
  // To be done by the thread that writes.
  struct Waiting {
    std::string id;
    OwnerId owner{};
    std::string content = {};
    bool remove = false;  // no content: the file is to go
  };
  struct Reading {
    std::string id;
    bool done = false;
    Result<std::vector<std::byte>> file = Cancelled("nobody has read it yet");
  };
  using Instant = std::chrono::steady_clock::time_point;

  DocumentStore(const DocumentOptions& options, const StateKeys& keys)
      : options_(options),
        keys_(keys),
        day_(options.bytes_day_max),
        writes_("writing documents to " + options.path, options.retry_ms) {}
  int64_t WallMs() const;
  Status ReadFolder();
  Result<DocumentHead> ReadHead(const std::string& id) const;
  Result<std::vector<std::byte>> ReadFile(const std::string& id) const;
  Status WriteFile(const std::string& id, std::span<const std::byte> bytes) const;
  Status Failure(const char* what, int error) const;
  int FaultOf(const char* call) const { return options_.fault ? options_.fault(call) : 0; }
  void Unlink(const std::string& id) const;
  void WriteLoop();
  void ReadLoop();
  // Under the lock, which they give up for a while:
  void Carry(const Waiting& document, std::unique_lock<std::mutex>* lock);
  void TryToWrite(std::unique_lock<std::mutex>* lock);
  Result<std::vector<std::byte>> Await(const std::string& id, std::unique_lock<std::mutex>* lock);
  std::optional<std::string> GetBy(const StateKey& key, const std::string& id, const OwnerId& owner,
                                   std::unique_lock<std::mutex>* lock);
  bool RemoveId(const std::string& id, std::unique_lock<std::mutex>* lock);
  // Under the lock:
  void TakeOver(std::string_view owner);
  void Note(const std::string& id, const OwnerId& owner, uint64_t bytes);
  void Drop(const std::string& id);
  std::vector<std::string> MakeRoom(const OwnerId& owner, uint64_t bytes);
  bool Fits(uint64_t bytes) const {
    return bytes <= options_.owner_bytes_max && bytes <= options_.bytes_max;
  }

  const DocumentOptions options_;
  const StateKeys keys_;
  OpenFile folder_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::unordered_map<std::string, Entry> entries_;  // by id
  std::map<uint64_t, std::string> ids_;             // oldest first
  std::map<OwnerId, Held> owners_;
  std::map<std::string, uint64_t> unread_;  // that could not be read at the start: their sizes
  uint64_t unread_bytes_ = 0;
  std::deque<Waiting> queue_;
  size_t queue_bytes_ = 0;
  const Waiting* writing_ = nullptr;
  std::deque<std::shared_ptr<Reading>> reads_;
  std::multiset<Instant> reading_since_;  // of those that are being read
  uint64_t orders_ = 0;
  int64_t last_created_ms_ = 0;
  DayBudget day_;
  Breaker writes_;
  Instant try_at_;
  int64_t try_pause_ms_ = 0;
  bool stop_ = false;
  Stats stats_;
  std::vector<std::thread> threads_;
};

}  // namespace reprise
