// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "cache/store/chore.h"
#include "cache/tier/copy_pace.h"
#include "cache/tier/known_records.h"
#include "cache/tier/paced_path.h"
#include "cache/tier/part_pool.h"
#include "cache/tier/tier.h"
#include "device/background.h"
#include "state/packing.h"
#include "tier/record_store.h"

namespace reprise {

// A tier of records (tier/record_store.h), on a disk or in a store that several servers share: what
// the index wants moved is copied out of memory piece by piece (copy_pace.h) and written behind;
// what it wants back is read by other threads and copied in when all of it was checked. So the
// engine's thread never waits.
//
// The index knows records by its own ids and only those that it has met; the store knows all of
// them, by their paths. Which blocks a record has is the store's affair: it may have found a deeper
// one to continue than the index knew of.
//
// Recurrent state may be rounded on its way down: then its records are another model's, as far as
// the store can tell.
//
// Thread safety: none.
class RecordTier : public Tier {
 public:
  explicit RecordTier(std::unique_ptr<RecordStore> store, StatePacking packing = {},
                      const Clock& clock = TheSteadyClock())
      : store_(std::move(store)), packing_(std::move(packing)), clock_(clock) {}

  std::string_view name() const override { return store_->home().kind(); }
  bool shared() const override { return store_->home().shared(); }
  bool rounds() const override { return packing_.rounded(); }
  void Open(const StateMemory& memory, DeviceMemory& device) override;
  void AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const override;
  void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) override;
  uint64_t Ask(const NamespaceKey& key, std::span<const TokenId> prompt) override {
    return store_->Look(RootsOf(key), prompt);
  }
  void Begin(const Move& move) override;
  void Cancel(uint64_t move) override;
  void Remove(TierRecordId record) override;
  // One of the key before is not: then all of it is written with the current one.
  bool Continues(TierRecordId record) const override;
  void Reset(const NamespaceKey* key) override;
  News Poll(When when) override;
  void AddTo(CacheStats* stats) const override { stats->Add(store_->stats()); }

 private:
  struct Spill {
    Move move;
    PacedPath path;
    std::optional<RecordStore::Draft> draft;  // once it has begun
    size_t next = 0;                          // part to begin
    PartBytes part;                           // the one before it, on its way out of memory,
    size_t copied = 0;                        // so much of it was asked for,
    uint64_t mark = 0;                        // and when that is there
    size_t bytes = 0;
    int64_t begun_ns = 0;
  };
  // What came of a fetch, on its way into memory of this process.
  struct Arrival {
    Move move;
    RecordStore::Fetched came;
    Chore chore;
  };
  struct Fetch {
    Move move;
    uint64_t ticket = 0;
    bool failed = false;
    size_t bytes = 0;
    int64_t begun_ns = 0;
    std::optional<RecordStore::Fetched> came;
    size_t next = 0;                             // block to copy in; behind the last one the state
    std::shared_ptr<Arrival> arrival = nullptr;  // where another thread copies it in
  };

  std::string DigestOf(const NamespaceKey& key) const {
    return key.digest + std::string(packing_.tag());
  }
  PathId RootOf(const NamespaceKey& key) const {
    return store_->NamespaceOf(DigestOf(key), key.salt);
  }
  // ... and by the key before, while keys are changed.
  std::vector<PathId> RootsOf(const NamespaceKey& key) const;
  void BeginPace(When when);
  void HearStore(News* news);
  void CopyOut(News* news);
  bool BeginSpill(Spill* spill, bool* stored);
  void TakePart(Spill* spill);
  void CopyPart(Spill* spill);
  void CopyPiece(const Spill& spill, const RecordLayout::Part& part, size_t offset, size_t bytes);
  void HandOver(Spill* spill);
  void DropSpill();
  void CopyIn(News* news);
  bool CopySome(Fetch* fetch, size_t* bytes_left);
  void CopyBeside(Fetch* fetch);
  void Fill(const Arrival& arrival) const;

  std::unique_ptr<PartPool> parts_;  // outlives the threads that write
  const std::unique_ptr<RecordStore> store_;
  const StatePacking packing_;
  const Clock& clock_;
  CopyPace pace_{clock_};
  int64_t charged_ns_ = 0;  // of RecordStore::writer_ns
  StateMemory memory_;
  DeviceMemory* device_ = nullptr;
  StateShape shape_;
  std::deque<Spill> spills_;  // the first may have begun
  std::vector<Fetch> fetches_;
  KnownRecords known_;
  std::unordered_set<PathId> models_before_;  // as records of the key before name them
  Background copier_;                         // ends before what it copies
};

}  // namespace reprise
