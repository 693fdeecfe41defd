// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/buffer.h"
#include "tier/catalog.h"
#include "tier/guard/breaker.h"
#include "tier/guard/day_room.h"
#include "tier/guard/quarantine.h"
#include "tier/home.h"
#include "tier/path_id.h"
#include "tier/plan.h"
#include "tier/state_keys.h"
#include "tier/tier_stats.h"
#include "tier/transfers.h"
#include "tier/waits/looks.h"
#include "tier/waits/patience.h"
#include "tier/waits/reads.h"
#include "tier/waits/resets.h"

namespace reprise {

struct StoreLimits {
  uint64_t bytes_max = 0;        // of all records; 0: the home's own affair
  uint64_t bytes_day_max = 0;    // written in any 24 hours; 0: no limit
  size_t records_max = 100'000;  // known of a shared home
  int reader_count = 4;
  int64_t retry_ms = 60'000;           // after a failure of the home it is asked so much later
  int64_t timeout_ms = 0;              // so long it is waited for (waits/patience.h); 0: no limit
  std::function<int64_t()> wall_ms;    // tests; null: the system's
  std::function<int64_t()> steady_ms;  // the same
  std::function<int64_t()> writer_ns;  // the same: RecordStore::writer_ns
};

struct DiskOptions : StoreLimits {
  DiskOptions() { timeout_ms = 5000; }
  std::string path;
  bool sync = true;       // audits: what is written need not survive the machine
  bool compress = false;  // what is written, without loss; what is read may be either
  std::function<int(const char* call)> fault;  // tests: StateFolder::fault
};

// RecordStore keeps state in a home of records: bounded in bytes and in bytes written a day, never
// waited for. Everything that is wrong with a record or with its home is a miss.
//
//   store   BeginStore -> the layout of a record -> AddPart for each of its parts -> it is found
//   fetch   Find -> Fetch -> a ticket -> Poll says when the bytes are there, all of them checked
//   look    where others write to the home, too: Look -> a ticket -> Poll says when Find knows
//
// A start reads heads only (or an index of them), of a home that is this process's own; of a shared
// one the catalog has what was looked up. One store is under way at a time; parts that wait to be
// written take at most kQueueBytes, those that were read at most what their requests take plus one
// more.
//
// A fault stays where it is. Reads and writes have a breaker each (guard/breaker.h): what fails is
// left alone until a thread has found that just that works again. A record of a disk that cannot be
// read is set aside for a while, and the others are read. A read that takes too long is a miss for
// the one who waits; it is a failure of the home only if nothing of it comes. So is a write.
//
// Thread safety: none; `notify` is called from other threads when Poll has something to say.
class RecordStore {
 public:
  static constexpr size_t kQueueBytes = size_t{32} << 20;
  static constexpr int64_t kFreshPart = 4;     // of the time that a home keeps what it has
  static constexpr size_t kDropsPerPoll = 64;  // records that were lost: about 0.1 ms

  static Result<std::unique_ptr<RecordStore>> Open(std::unique_ptr<RecordHome> home,
                                                   const StoreLimits& limits,
                                                   const StateKeys& keys);
  // In a folder.
  static Result<std::unique_ptr<RecordStore>> Open(const DiskOptions& options,
                                                   const StateKeys& keys);
  ~RecordStore();
  // Null: nobody. Waits for a call under way.
  void SetNotify(std::function<void()> notify);

  PathId NamespaceOf(std::string_view digest, std::string_view salt) const {
    return keys_.current().NamespaceOf(digest, salt);
  }
  // By the key before, while keys are changed: what is stored there is read, and never continued.
  std::optional<PathId> NamespaceBefore(std::string_view digest, std::string_view salt) const {
    return keys_.NamespaceBefore(digest, salt);
  }

  const RecordHome& home() const { return *home_; }

  // Asks a shared home what it has along the paths that begin with `roots`. Returns a ticket; 0:
  // nobody need be asked, or the home is failing. Poll says when it was answered, within the
  // time-out, whatever happens.
  uint64_t Look(std::span<const PathId> roots, std::span<const TokenId> tokens);
  uint64_t Look(const PathId& root, std::span<const TokenId> tokens) {
    return Look(std::span(&root, 1), tokens);
  }

  // The deepest stored place at or above `limit`.
  std::optional<Catalog::Place> Deepest(const PromptPath& path, int32_t limit) const;
  // What to read for the state at a place, for one that has blocks [0, first_block) already.
  // Nothing: it is gone, or the home is failing.
  std::optional<ReadPlan> Plan(const Catalog::Place& place, uint32_t first_block) const;
  // Both: the deepest stored position in (have, limit].
  std::optional<ReadPlan> Find(const PromptPath& path, int32_t have, int32_t limit) const;
  const Catalog& catalog() const { return catalog_; }
  // Whether the state of exactly [0, position) is stored.
  bool Holds(const PromptPath& path, int32_t position) const;

  // Returns a ticket, or 0: too much is being read, or the home is failing.
  uint64_t Fetch(const ReadPlan& found, const StateShape& shape);
  struct Fetched {
    uint64_t ticket = 0;
    Status status;
    uint32_t first_block = 0;
    uint32_t block_count = 0;
    int32_t position = 0;
    Buffer bytes;  // blocks, then the snapshot
    int64_t ns = 0;
  };
  // What has come to an end since the last call.
  struct News {
    std::vector<uint64_t> looked;  // tickets that were answered
    std::vector<Fetched> fetched;
    bool store_ended = false;        // the one that was under way
    std::optional<RecordId> stored;  // ... well: its record
    std::vector<RecordId> gone;      // records that are no more
    bool more = false;               // there is more to remove: Poll again when there is time
  };
  News Poll();

  // A shared home lets go of what nobody looks up, and what is in memory here is not looked up.
  // True: the home is being asked whether what is known along the path is still there.
  // Nothing is stored that continues it before that is known: ask again after the next Poll.
  // `tokens`: of the path.
  bool Confirms(const PromptPath& path, std::span<const TokenId> tokens);
  // Whether what is known along the path was found in the home not long ago.
  bool IsFresh(const PromptPath& path, int32_t limit) const;

  // Begins to store the state of [0, position), of what is not stored yet of it. Nothing: it is
  // stored already, what it would continue may be gone (Confirms), another store is under way, the
  // home is failing, or it may not be written (now, today, or at all).
  struct Draft {
    RecordFacts facts;
    RecordLayout layout;
  };
  std::optional<Draft> BeginStore(const PromptPath& path, StoreWish wish);
  // Whether the parts of a record are waited for. It ends by itself where the home fails.
  bool storing() const { return storing_ && storing_->parts_left > 0; }
  bool HasRoom(size_t part_bytes) const;  // for one more part to wait
  void AddPart(PartBytes part);
  void AbortStore();
  // Whether a store could begin: none is under way and the home works.
  bool MayStore() const;
  // Whether everything that was taken is written (or lost, and counted).
  bool settled() const { return !storing_; }

  // Removes the records of a namespace, or all that can be read.
  void Forget(const PathId* space);

  void NoteUsed(RecordId record);
  TierStats stats() const;
  // How often reads, and writes, were left alone or taken up again.
  uint64_t read_changes() const { return reads_.changes(); }
  uint64_t write_changes() const { return writes_.changes(); }
  // Processor time that writing has taken so far.
  int64_t writer_ns() const {
    return limits_.writer_ns ? limits_.writer_ns() : transfers_->writer_ns();
  }

 private:
  struct Storing {
    std::string name;
    RecordFacts facts;
    uint64_t bytes = 0;
    RecordId parent;  // held
    std::vector<RecordId> replaced = {};
    size_t parts_left = 0;
    uint64_t handed = 0;  // bytes of parts that were added
    bool forget = false;  // it is to go as soon as it is there
  };
  RecordStore(std::unique_ptr<RecordHome> home, const StoreLimits& limits, const StateKeys& keys)
      : limits_(limits),
        keys_(keys),
        home_(std::move(home)),
        reads_("reading state from " + home_->where(), limits.retry_ms),
        writes_("writing state to " + home_->where(), limits.retry_ms),
        patience_{limits.timeout_ms},
        fetching_(patience_),
        looking_(patience_),
        quarantine_(limits.retry_ms),
        resets_(limits.retry_ms),
        day_(limits.bytes_day_max) {}
  void Notify();
  Status ReadHeads();
  int64_t WallMs() const;
  int64_t SteadyMs() const;
  bool MakeRoom(uint64_t bytes, const PathId* space);
  void DropRecord(RecordId id);
  bool DropLost(size_t count);
  void DropDamaged(RecordId id);
  void FailReads(const Status& why, const std::string& record);
  void FailWrites(const Status& why);
  void HearTries();
  void HearForgets();
  void HearLooks(News* news);
  void HearReads(News* news);
  void MindReads(News* news);
  void MindWrite(News* news);
  void EndRead(const Reads::Read& one, Transfers::ReadDone& done, News* news);
  void Answer(const Reads::Read& one, uint64_t ticket, Status status, News* news);
  void NoteReadFault(const Reads::Read& one, const Transfers::ReadDone& done);
  RecordId RecordNamed(RecordId from, const std::string& name) const;
  void Learn(const PromptPath& path, std::vector<RecordHome::Seen> seen);
  void DropReplaced(const std::vector<RecordId>& replaced);
  RecordId EndStore(const Transfers::WriteDone& written);

  const StoreLimits limits_;
  const StateKeys keys_;
  const std::unique_ptr<RecordHome> home_;
  std::mutex notify_mutex_;
  std::function<void()> notify_;
  Catalog catalog_;
  struct Unreadable {
    std::string name;
    uint64_t bytes = 0;
  };
  std::vector<Unreadable> unreadable_;  // the first to make room
  bool listed_ = false;                 // the catalog has all that there is
  uint64_t unreadable_bytes_ = 0;
  std::optional<Storing> storing_;  // until it is on the disk
  uint64_t tickets_ = 0;
  mutable int64_t now_ms_ = 0;  // never goes back, whatever the clock does
  Breaker reads_, writes_;
  const Patience patience_;
  Reads fetching_;
  Looks looking_;
  uint64_t confirming_ = 0;  // a ticket,
  PathId confirmed_;         // and what it asks for, or has asked for
  Quarantine quarantine_;
  Resets resets_;
  DayRoom day_;
  std::vector<RecordId> gone_;
  TierStats stats_;
  std::unique_ptr<Transfers> transfers_;  // last: its threads end first
};

}  // namespace reprise
