// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/announce/announcer.h"
#include "cache/cache_options.h"
#include "cache/component/kv.h"
#include "cache/component/recurrent.h"
#include "cache/index/keep/freshness.h"
#include "cache/index/keep/pins.h"
#include "cache/index/records.h"
#include "cache/index/tenants.h"
#include "cache/pieces.h"
#include "cache/policy/eviction_order.h"
#include "cache/policy/load_or_compute.h"
#include "cache/policy/scan_guard.h"
#include "cache/policy/value.h"
#include "cache/stats.h"
#include "cache/store/action.h"
#include "cache/store/block_pool.h"
#include "cache/store/id_pool.h"
#include "cache/tree/radix_tree.h"
#include "state/spec.h"

namespace reprise {

// Memory that room is made for.
struct Units {
  uint32_t blocks = 0;
  uint32_t states = 0;
};

// Which pinned entries may go: none; those of tenants that have more than their share; all.
enum class PinsGo : uint8_t { kNone, kBeyondShare, kAll };

// Keeper is what the index keeps, and who goes: the tree with its components, the pools, and an
// order over entries by what they are worth. Room is made by taking the first of them, until the
// budget, the pools and the device have what is wanted; pinned ones last, and at the cost of those
// tenants that have more than their share. A pin holds within its tenant's share: beyond that it
// goes before what other tenants have within theirs.
//
// An entry is what eviction takes: in models with recurrent state a snapshot, with the K/V that
// only it made reachable; in attention-only models the last block of a leaf. Its key is computed
// anew before it goes, and those of all, a few at a time, when the policy has learnt something.
//
// It knows no lease and no lower tier: what those can give up, StateIndex says (the hooks below).
//
// Thread safety: none.
// Invariants (StateIndex::CheckInvariants):
//  (1) With recurrent state, K/V is held up to p of a node only if a snapshot lies at or behind p,
//      there or below: nothing is kept that nobody could use.
//  (2) Without it, every node with K/V has an entry, and that stands in the eviction order exactly
//      if no child holds K/V, it is not pinned, and its last block was not found leased.
class Keeper {
 public:
  struct Options {
    StateSpec spec;
    CacheOptions cache;
    int32_t block_tokens = kBlockTokens;     // tests use small ones
    std::unique_ptr<EvictionPolicy> policy;  // null: CostPerBytePolicy
    double ladder_share = 0.08;              // of the budget: rungs for edits; 0: none
    // Large states are filled beside the thread that calls: a snapshot at the end of a step is left
    // by the step, as those inside it are, and what is being restored stays (Entry::readers).
    bool fills_beside = false;
    // Gets memory for units before they are taken, or says why there is none. Empty: there is.
    std::function<Status(std::span<const BlockId>, std::span<const StateId>)> back;
  };

  size_t bytes_used() const;
  size_t bytes_metadata() const;
  // Bytes that running requests could still take, everything that is only cached given up.
  size_t BytesFree() const;

 protected:
  // `observer` hears of the tree's nodes.
  Keeper(Options options, RadixTree::Observer* observer);
  virtual ~Keeper() = default;

  // What else can be given up, at a cost; false: nothing.
  virtual bool GiveUpAhead() = 0;         // a block that a running request took before it needs it
  virtual bool FreeCopies() = 0;          // of blocks that nothing else refers to
  virtual bool ForgetOldestRecord() = 0;  // of what lower tiers have
  virtual bool CancelOneMove() = 0;
  // What an entry is decides how many there are, and what pins of a node hold.
  virtual size_t EntryCount() const = 0;
  virtual size_t HeldByPins(NodeId node, bool pinned_below) const = 0;
  virtual size_t BytesBeside() const = 0;  // metadata of leases and names

  bool has_kv() const { return kv_ != nullptr; }
  EntryId TailOf(NodeId node) const {
    return node.value < tails_.size() ? tails_[node.value] : EntryId();
  }

  // keeper.cc: room, and whose it is.
  bool MakeRoom(const Units& units, size_t metadata, EvictReason why, bool even_pinned);
  // From now on the entry is not evicted, and one that was spared before may be again.
  void Spare(EntryId entry);
  bool MakeRoomForSnapshot(double key, bool claims_share);
  bool MakeRoomForRung(double key);
  bool Backed(const Units& units);
  Status NoRoom(const std::string& sentence) const;
  bool PurgeSomeGhosts();
  size_t LadderBytesMax() const;
  size_t CachedBytesOf(uint32_t owner) const;
  size_t ShareOf(uint32_t owner) const;
  Tenants::Mask OverShare() const;
  StateId AllocateSnapshot(SnapshotReason reason);
  void FreeSnapshot(StateId state, SnapshotReason reason);
  StateId AllocateState();
  void FreeState(StateId state);
  void NoteChange(NodeId node);

  // evict.cc: who goes, and what goes with it.
  EntryId NextVictim(double below_key, PinsGo pins);
  bool EvictOne(EvictReason why, double below_key, PinsGo pins);
  bool EvictTailBlock(EntryId id, EvictReason why);
  void DropTail(EntryId id, EvictReason why);
  void DropSnapshot(EntryId id, EvictReason why);
  void TrimUnreachable(NodeId node, int32_t position);
  void CountEvicted(const Entry& entry, EvictReason why);
  bool Expired(const Entry& entry) const;
  bool ExpireEntries(int count);
  void EnforceEntryLimit();

  // worth.cc: what an entry is worth, and whether it stands in the order.
  EntryFacts FactsOf(EntryId id) const;
  double KeyOf(const EntryFacts& facts) const;
  double LossOf(NodeId node, int32_t from, int32_t upto) const;
  static EndKind EndKindOf(SnapshotReason reason);
  EndKind EndKindOf(const Entry& entry) const;
  void AfterTailChanged(NodeId node, const Entry& like);
  void UpdateTail(NodeId node);
  void Rekey(EntryId id);
  void RekeySome(uint32_t count);
  void UnparkAll();
  void PinEntry(EntryId id, int64_t pin_ms);
  void BoundPins(EntryId id);
  void Unpin(EntryId id);
  void ExpirePins();
  size_t PinnedBytesMax() const;
  size_t KvBytesUpTo(NodeId node, int32_t upto) const;

  Options options_;
  size_t block_bytes_;
  size_t state_bytes_;
  CostModel cost_;
  int64_t now_ms_ = 0;

  Actions actions_;
  RadixTree tree_;
  BlockPool blocks_;
  size_t node_count_max_;  // a tree that is larger would take the room of a running request
  IdPool<StateId> states_;
  int32_t live_states_ = 0;   // of them, those of running sequences
  int32_t draft_states_ = 0;  // and those of drafts in the step under way
  size_t rung_count_ = 0;     // of them, rungs of the ladder from the end (kEdit)
  std::unique_ptr<Kv> kv_;
  std::unique_ptr<Recurrent> recurrent_;
  std::vector<Component*> components_;    // those of them that the model has
  std::unique_ptr<Announcer> announcer_;  // null: nobody is told

  Tenants tenants_;
  Claim claim_;                         // what room is made for
  std::vector<uint32_t> snapshots_of_;  // by owner
  EvictionOrder order_;
  ScanGuard guard_;
  bool newcomer_cold_ = false;   // the snapshot that room is made for
  uint32_t rekey_next_ = 0;      // keys are computed anew from here on,
  uint32_t rekey_left_ = 0;      // so many of them
  EntryId spared_;               // what Start is about to restore
  Pieces<EntryId> tails_;        // by node: the entry of its K/V (attention-only models)
  size_t leaf_count_ = 0;        // tails that could be evicted, now or when unpinned
  std::vector<EntryId> parked_;  // taken out of the order because their last block was leased
  Pins pins_;
  Freshness fresh_;
  Records records_;      // what lower tiers have: it costs less to lose
  LoadOrCompute rates_;  // how much less
  Status refusal_;       // what the device said when memory was last asked for
  CacheStats stats_;
};

}  // namespace reprise
