// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/store/chore.h"
#include "cache/tier/copy_pace.h"
#include "cache/tier/known_records.h"
#include "cache/tier/paced_path.h"
#include "cache/tier/tier.h"
#include "device/background.h"
#include "device/host_lane.h"
#include "tier/catalog.h"
#include "tier/plan.h"
#include "tier/state_key.h"
#include "tier/tier_stats.h"

namespace reprise {

// HostTier keeps state in memory of the host, as it lies on the device: what has no room there is
// demoted, not lost. Copies go on beside the steps (device/host_lane.h); nobody waits for them, and
// they are all that a move costs. It ends with the process.
//
// The memory is divided into slots of one block (of a snapshot, where a model has no K/V), or of as
// many that a snapshot takes no more than kStateSlots of them. A record is its blocks and then its
// snapshot, in as many slots as that takes:
//
//   record   [64 ..... 210)   |block 1|block 2|block 3|state  .  .  |     six slots, anywhere
//
// Where this machine's cores compute the steps, large records come in on a thread of their own, so
// that no call takes longer because a state is larger.
//
// When there is no room, records go of the namespaces that have more than their share: those that
// were not used for longest, ends before what they continue.
//
// Thread safety: none.
class HostTier : public Tier {
 public:
  static constexpr size_t kDropsPerPoll = 64;  // records of a namespace that was reset
  static constexpr size_t kStateSlots = 64;
  // What one call copies itself, where it does: in; and out, at rest.
  static constexpr size_t kInBytesPerCall = size_t{1} << 20;
  static constexpr size_t kOutBytesPerCall = size_t{4} << 20;

  // `bytes` of memory, taken now. Fails where they are not to be had, or are too few to be of use.
  static Result<std::unique_ptr<HostTier>> Make(const StateLayout& layout, size_t bytes,
                                                DeviceMemory& device,
                                                const Clock& clock = TheSteadyClock());

  std::string_view name() const override { return "host"; }
  void Open(const StateMemory& memory, DeviceMemory& device) override {
    memory_ = memory;
    device_ = &device;
  }
  void AddRoots(const NamespaceKey& key, std::vector<PathId>* roots) const override;
  void Find(const NamespaceKey& key, const PromptPaths& prompt, const Found& found) override;
  void Begin(const Move& move) override;
  void Cancel(uint64_t move) override;
  void Remove(TierRecordId record) override;
  void Reset(const NamespaceKey* key) override;
  News Poll(When when) override;
  void AddTo(CacheStats* stats) const override;

 private:
  // One copy between a slot and the device.
  struct Hop {
    std::byte* here = nullptr;
    DevicePtr<std::byte> there;
    size_t bytes = 0;
  };
  struct Flight {
    Move move;
    PacedPath path;  // of a spill
    int64_t begun_ns = 0;
    std::vector<Hop> hops;
    size_t next = 0;    // to be asked for,
    size_t offset = 0;  // from here on
    uint64_t mark = 0;  // behind those that were
    size_t bytes = 0;
    std::shared_ptr<Chore> arrival;    // of a fetch that another thread copies in
    RecordId held;                     // what it reads or continues
    std::vector<RecordId> replaced;    // go when it is there
    std::optional<RecordFacts> facts;  // of a spill that has begun
    std::vector<uint32_t> slots;       // the same
    bool failed = false;
  };

  HostTier(StateShape shape, std::unique_ptr<HostLane> lane, const Clock& clock);
  PathId RootOf(const NamespaceKey& key) const { return key_.NamespaceOf(key.digest, key.salt); }
  size_t SlotsOf(const RecordFacts& facts) const;
  void AddHops(std::span<const uint32_t> slots, size_t offset, DevicePtr<std::byte> there,
               size_t bytes, std::vector<Hop>* hops) const;
  bool ComesBeside(const Flight& flight) const;
  void FetchBeside(Flight* flight);
  bool PlanFetch(Flight* flight);
  bool BeginSpill(Flight* flight, bool* stored);
  void EndSpill(Flight* flight, News* news);
  void CopyIn(News* news);
  void CopyOut(News* news);
  bool Ask(Flight* flight, size_t* bytes_left);
  bool MakeRoom(size_t slots, const PathId& space);
  void Drop(RecordId record);
  bool DropLost();
  void Release(Flight* flight);

  const StateShape shape_;
  const size_t slot_bytes_;
  const std::unique_ptr<HostLane> lane_;
  const Clock& clock_;
  CopyPace pace_{clock_};
  const StateKey key_;  // none: nothing leaves this process
  StateMemory memory_;
  DeviceMemory* device_ = nullptr;
  size_t slot_count_ = 0;
  std::vector<uint32_t> free_;  // slots
  Catalog catalog_;
  std::unordered_map<RecordId, std::vector<uint32_t>> slots_;
  KnownRecords known_;
  bool strangers_ = false;     // records may be here that the index does not know
  std::deque<Flight> spills_;  // the first may have begun
  std::vector<Flight> fetches_;
  std::vector<TierRecordId> lost_;
  int64_t uses_ = 0;  // what catalog_ takes for the time
  TierStats stats_;
  Background copier_;  // ends before what it copies
};

}  // namespace reprise
