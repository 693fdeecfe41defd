// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "cache/announce/announcer.h"
#include "cache/component/kv.h"
#include "cache/component/recurrent.h"
#include "cache/index/conversation_ends.h"
#include "cache/index/flights.h"
#include "cache/index/freshness.h"
#include "cache/index/lease_record.h"
#include "cache/index/pins.h"
#include "cache/index/records.h"
#include "cache/index/tenants.h"
#include "cache/index/transfer.h"
#include "cache/pieces.h"
#include "cache/policy/eviction_order.h"
#include "cache/policy/load_or_compute.h"
#include "cache/policy/value.h"
#include "cache/state_cache.h"
#include "cache/store/action.h"
#include "cache/store/block_pool.h"
#include "cache/store/id_pool.h"
#include "cache/tier/tier.h"
#include "cache/tree/radix_tree.h"
#include "state/spec.h"

namespace reprise {

// StateIndex is the state cache without its bytes: tree, components, policy, leases and the budget,
// all on ids. It appends what memory has to do to actions(); StateCache lets the store do it, a
// simulation or a test may throw it away.
//
// An entry is what eviction takes: in models with recurrent state a snapshot, with the K/V that
// only it made reachable; in attention-only models the last block of a leaf. All that differs
// between the two is in kind/entry_kind.h.
//
// Thread safety: none.
// Invariants, beyond those of the parts (CheckInvariants):
//  (1) bytes_used() <= budget, after every operation that took memory.
//  (2) A block's tree refs are the nodes that list it; its lease refs the tables that do.
//  (3) With recurrent state, K/V is held up to p of a node only if a snapshot lies at or behind p,
//      there or below: nothing is kept that nobody could use.
//  (4) Without it, every node with K/V has an entry, and that stands in the eviction order exactly
//      if no child holds K/V, it is not pinned, and its last block was not found leased.
//  (5) A state id is used exactly if one entry or one lease names it.
//  (6) There are at most node_count_max_ nodes, roots not counted.
class StateIndex : private RadixTree::Observer, private Recurrent::Owner {
 public:
  struct Options {
    StateSpec spec;
    CacheOptions cache;
    int32_t block_tokens = kBlockTokens;     // tests use small ones
    std::unique_ptr<EvictionPolicy> policy;  // null: CostPerBytePolicy
    double ladder_share = 0.08;              // of the budget: rungs for edits; 0: none
    // Gets memory for units before they are taken, or says why there is none. Empty: there is.
    std::function<Status(std::span<const BlockId>, std::span<const StateId>)> back;
  };
  explicit StateIndex(Options options);
  ~StateIndex() override;

  void SetTime(int64_t now_ms);
  Lease Acquire(const CacheRequest& request);
  bool LookUp(const Lease& lease, int32_t* tokens_left);
  std::optional<Awaited> FindAwaited(const Lease& lease);
  StartAnswer Start(const Lease& lease);
  Status Reserve(const Lease& lease, int32_t token_count);
  void Append(const Lease& lease, std::span<const TokenId> tokens);
  Status Commit(const Lease& lease, const CommitArgs& args);
  Status Compact(const Lease& lease, int32_t kept, bool alone, const StateCache::MoveRows& move);
  ReuseReport Finish(Lease lease, std::vector<TokenId>* storage = nullptr);
  void Release(uint32_t seat, uint64_t id);
  bool Maintain();
  bool GiveWay(size_t bytes);
  size_t BytesWanted(const Lease& lease);
  size_t BytesWantedByRunning() const;
  size_t BytesFree() const;
  int32_t Pin(const NamespaceKey& key, std::span<const TokenId> tokens, int64_t pin_ms);
  void Reset(const NamespaceKey* key);  // null: all

  // Lower tiers. Moves that were decided on are to begin once actions() are done.
  void SetTier(Tier* tier);
  std::vector<Move> TakeMoves() { return std::exchange(moves_, {}); }
  void Hear(const Tier::News& news);
  void CancelMoves();
  void WishAll();  // everything worth keeping is to go down, in idle time
  bool wishes() const { return !spill_now_.empty() || !spill_idle_.empty(); }
  size_t moves_under_way() const;  // and questions to the tier
  std::optional<Residency> ResidencyOf(const NamespaceKey& key,
                                       std::span<const TokenId> tokens) const;
  void Announce();  // before the first request: from then on events say what can be resumed
  std::vector<BlockEvent> TakeBlockEvents();
  const LeaseRecord& record(const Lease& lease) const;
  void NoteRestore(const Lease& lease, int64_t restore_ns);
  Actions& actions() { return actions_; }
  const StateSpec& spec() const { return options_.spec; }
  const CacheOptions& options() const { return options_.cache; }
  size_t block_bytes() const { return block_bytes_; }
  size_t state_bytes() const { return state_bytes_; }
  size_t bytes_used() const;
  size_t bytes_metadata() const;
  size_t pinned_bytes() const { return pins_.bytes(); }
  size_t ladder_bytes() const { return rung_count_ * state_bytes_; }
  uint32_t block_capacity() const { return blocks_.capacity(); }
  uint32_t state_capacity() const { return states_.capacity(); }
  // What a tenant has cached, and its share of the room for that.
  std::pair<size_t, size_t> BytesAndShareOf(std::string_view tenant) const;
  CacheStats stats() const;
  CacheStats& counters() { return stats_; }
  std::vector<TreeNodeView> View(const NamespaceKey& key, size_t node_count_max,
                                 std::span<const TokenId> prompt) const;
  std::string Dump() const;
  Status CheckInvariants() const;

 private:
  using NamespaceMap = std::map<std::pair<std::string, std::string>, NodeId>;  // (salt, digest)
  class EntryKind;
  class SnapshotKind;
  class TailKind;
  // Waiting for another request costs a step or more; it must save at least this.
  static constexpr int32_t kAwaitTokensMin = 32;

  // state_index.cc
  bool has_kv() const { return kv_ != nullptr; }
  EntryId TailOf(NodeId node) const {
    return node.value < tails_.size() ? tails_[node.value] : EntryId();
  }
  LeaseRecord& RecordOf(const Lease& lease);
  NodeId RootOf(const NamespaceKey& key);
  void ForgetIfEmpty(NodeId root);
  size_t BlocksNeeded(const LeaseRecord& record) const;
  BlockNeed NeedOf(const LeaseRecord& record, int32_t token_count) const;
  Status ReserveBlocks(LeaseRecord& record, const BlockNeed& need);
  void TakeAhead(LeaseRecord& record, int32_t token_count);
  bool GiveUpAhead();
  void Settle();
  void NoteChange(NodeId node);
  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId node) override;
  void OnEntryMoved(EntryId entry, NodeId node) override;

  // lookup.cc
  MatchResult Match(LeaseRecord& record) const;
  RadixTree::Path UpTo(const RadixTree::Path& path, int32_t position) const;
  void Adopt(uint32_t seat, const RadixTree::Path& path, int32_t position);
  int32_t Serve(const RadixTree::Path& path, int32_t limit) const;
  EntryId ServingAt(const RadixTree::Path& path, int32_t position) const;
  void Explain(const LeaseRecord& record, const MatchResult& match, ReuseReport* report) const;
  bool StoredUnderOtherDigest(const LeaseRecord& record) const;
  void CountLookup(const ReuseReport& report);
  bool StillPromises(const LeaseRecord& flight, const LeaseRecord& waiting) const;

  // publish.cc
  bool MakeRoomForNodes();
  void AdvanceCursor(LeaseRecord& record, int32_t upto);
  void AttachBlocks(LeaseRecord& record, int32_t from);
  void Publish(LeaseRecord& record, int32_t upto);
  void ShareBlocks(LeaseRecord& record, const std::vector<NodeId>& path, int32_t upto);
  void ReservePending(LeaseRecord& record, int32_t upto);
  void PublishPending(LeaseRecord& record);
  void FreePending(LeaseRecord& record);
  bool MakeRoomForPlanned(LeaseRecord& record, const PlannedSnapshot& one, int32_t replay);
  StateId AllocateSnapshot(SnapshotReason reason);
  void FreeSnapshot(StateId state, SnapshotReason reason);
  StateId AllocateState();
  void FreeState(StateId state);
  void TakeSnapshot(LeaseRecord& record, const PlannedSnapshot& one, StateId state);
  static void NoteStored(LeaseRecord& record, const PlannedSnapshot& one);
  void SupersedeAbove(const LeaseRecord& record, NodeId node, int32_t position);
  void DropBehindWindow(LeaseRecord& record);

  // evict.cc
  bool PurgeSomeGhosts();
  bool MakeRoom(const Units& units, size_t metadata, EvictReason why, bool even_pinned);
  bool Backed(const Units& units);
  Status NoRoom(const std::string& sentence) const;
  bool MakeRoomForSnapshot(double key, bool claims_share);
  size_t CachedBytesOf(uint32_t owner) const;
  size_t ShareOf(uint32_t owner) const;
  Tenants::Mask OverShare() const;
  bool MakeRoomForRung(double key);
  size_t LadderBytesMax() const;
  double KeyOf(const EntryFacts& facts) const;
  bool EvictOne(EvictReason why, double below_key, bool even_pinned);
  EntryId NextVictim(double below_key);
  bool EvictTailBlock(EntryId id, EvictReason why);
  void DropTail(EntryId id, EvictReason why);
  void DropSnapshot(EntryId id, EvictReason why);
  void CountEvicted(const Entry& entry, EvictReason why);
  void TrimUnreachable(NodeId node, int32_t position);
  void AfterTailChanged(NodeId node, const LeaseRecord& record);
  static EndKind EndKindOf(SnapshotReason reason);
  EndKind EndKindOf(const Entry& entry) const;
  void RekeySome(uint32_t count);
  void UpdateTail(NodeId node);
  void Rekey(EntryId id);
  EntryFacts FactsOf(EntryId id) const;
  double LossOf(NodeId node, int32_t from, int32_t upto) const;
  void UnparkAll();
  void PinEntry(EntryId id, int64_t pin_ms);
  void Unpin(EntryId id);
  void ExpirePins();
  size_t PinnedBytesMax() const;
  size_t KvBytesUpTo(NodeId node, int32_t upto) const;
  bool Expired(const Entry& entry) const;
  bool ExpireSome(int count);
  void EnforceEntryLimit();

  // tiers.cc
  void WishSpill(const LeaseRecord& record, int32_t position, SnapshotReason reason);
  void SpillSome(std::deque<SpillWish>* wishes);
  void BeginSpill(const SpillWish& wish);
  bool TakeBlocksToSpill(const RadixTree::Path& path, bool with_state, Move* move) const;
  std::optional<Awaited> AwaitLoad(uint32_t seat, const MatchResult& match);
  bool BeginLoad(uint32_t seat, uint32_t load, int32_t position);
  Status TakeBlocksToLoad(LeaseRecord& record, int32_t position, Move* move);
  void EndTransfer(uint64_t id, const MoveDone& done);
  void EndSpill(const Transfer& transfer, const MoveDone& done);
  void EndLoad(const Transfer& transfer, const MoveDone& done);
  bool CancelOneMove();
  void CancelMove(uint64_t id);
  void CancelMovesOf(NodeId root);
  void ForgetRecord(TierRecordId id);
  bool ForgetOldestRecord();
  void BoundRecords();
  int64_t RecordsSinceMs() const;
  bool AwaitsAnswer(LeaseRecord& record) const;
  void AddFound(const LeaseRecord& record);
  NamespaceKey KeyOfRoot(NodeId root) const;

  // check.cc
  Status CheckNodes() const;
  Status CheckRefs() const;
  Status CheckEntries() const;
  std::string DescribeNode(NodeId node) const;
  TreeNodeView ViewOf(NodeId node, int depth, std::span<const TokenId> prompt) const;

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
  int32_t live_states_ = 0;  // of them, those of running sequences
  size_t rung_count_ = 0;    // of them, rungs of the ladder from the end (kEdit)
  std::unique_ptr<Kv> kv_;
  std::unique_ptr<Recurrent> recurrent_;
  std::vector<Component*> components_;  // those of them that the model has
  std::unique_ptr<EntryKind> kind_;
  std::unique_ptr<Announcer> announcer_;  // null: nobody is told

  Tenants tenants_;
  Claim claim_;                         // what room is made for
  std::vector<uint32_t> snapshots_of_;  // by owner
  EvictionOrder order_;
  uint32_t rekey_next_ = 0;      // keys are computed anew from here on,
  uint32_t rekey_left_ = 0;      // so many of them
  EntryId serving_;              // what Start is about to restore: not evicted meanwhile
  Pieces<EntryId> tails_;        // by node: the entry of its K/V (attention-only models)
  ConversationEnds ends_;        // of attention-only models
  size_t leaf_count_ = 0;        // tails that could be evicted, now or when unpinned
  std::vector<EntryId> parked_;  // taken out of the order because their last block was leased
  Pins pins_;
  Freshness fresh_;

  NamespaceMap namespaces_;
  std::unordered_map<NodeId, NamespaceMap::iterator> namespace_of_;  // by root
  std::vector<NodeId> maybe_empty_;                                  // roots that lost a child
  Flights flights_;
  size_t lease_bytes_ = 0;  // of the records of those that have started
  Tier* tier_ = nullptr;    // null: there is none
  Records records_;
  LoadOrCompute rates_;
  std::map<uint64_t, Transfer> transfers_;  // by the id of their move
  uint64_t move_count_ = 0;
  std::vector<Move> moves_;           // not begun yet
  std::deque<SpillWish> spill_now_;   // pinned, shared: at once
  std::deque<SpillWish> spill_idle_;  // ends of conversations: when there is time
  size_t ghost_tokens_max_;
  Status refusal_;  // what the device said when memory was last asked for
  CacheStats stats_;
};

}  // namespace reprise
