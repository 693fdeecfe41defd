// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/index/conversation_ends.h"
#include "cache/index/flights.h"
#include "cache/index/keep/keeper.h"
#include "cache/index/lease_record.h"
#include "cache/policy/sessions.h"
#include "cache/state_cache.h"
#include "cache/tier/tier.h"

namespace reprise {

// StateIndex is the state cache without its bytes, all on ids: leases find state in what a Keeper
// keeps, wait for each other, leave new state behind, and move it to and from lower tiers. It
// appends what memory has to do to actions(); StateCache lets the store do it, a simulation or a
// test may throw it away.
//
// All that differs between models with recurrent state, whose entries are snapshots, and others is
// in kind/entry_kind.h; what goes down to a lower tier and what comes up in moves/.
//
// Thread safety: none.
// Invariants, beyond those of the parts (CheckInvariants):
//  (1) bytes_used() <= budget, after every operation that took memory.
//  (2) A block's tree refs are the nodes that list it; its lease refs the tables that do.
//  (3) A state id is used exactly if one entry or one lease names it.
//  (4) There are at most node_count_max_ nodes, roots not counted.
class StateIndex : private RadixTree::Observer, private Recurrent::Owner, private Keeper {
 public:
  using Keeper::Options;
  explicit StateIndex(Options options);
  ~StateIndex() override;

  void SetTime(int64_t now_ms);
  Lease Acquire(const CacheRequest& request);
  bool LookUp(const Lease& lease, int32_t* tokens_left);
  std::optional<Awaited> FindAwaited(const Lease& lease);
  StartAnswer Start(const Lease& lease);
  Status Reserve(const Lease& lease, int32_t token_count);
  // What a step of `next` tokens would take behind the one of `now` that is reserved.
  Units UnitsBehind(const Lease& lease, int32_t now, int32_t next) const;
  // Those that would be taken next, as far as there are so many.
  std::pair<std::vector<BlockId>, std::vector<StateId>> NextUnits(const Units& units) const;
  int32_t ReserveDrafts(const Lease& lease, int32_t token_count, int32_t draft_count);
  void DropDrafts(const Lease& lease);
  void TokensBehind(const Lease& lease, size_t count, std::vector<TokenId>* tokens) const;
  void Append(const Lease& lease, std::span<const TokenId> tokens);
  Status Commit(const Lease& lease, const CommitArgs& args);
  Status Compact(const Lease& lease, int32_t kept, bool alone, const StateCache::MoveRows& move);
  ReuseReport Finish(Lease lease, std::vector<TokenId>* storage = nullptr);
  void Release(uint32_t seat, uint64_t id);
  bool Maintain();
  bool GiveWay(size_t bytes);
  // The budget becomes `bytes`, or what is used after the eviction of about `slice` bytes.
  size_t SetBudget(size_t bytes, size_t slice);
  size_t BytesWanted(const Lease& lease);
  size_t BytesWantedByRunning() const;
  using Keeper::BytesFree;
  int32_t Pin(const NamespaceKey& key, std::span<const TokenId> tokens, int64_t pin_ms);
  void Reset(const NamespaceKey* key);  // null: all

  // Lower tiers. Moves that were decided on are to begin once actions() are done.
  void SetTier(Tier* tier);
  std::vector<Move> TakeMoves() { return std::exchange(moves_, {}); }
  void Hear(const Tier::News& news);
  void CancelMoves();
  void WishAll();  // everything worth keeping is to go down, in idle time
  bool wishes() const;
  size_t moves_under_way() const;  // and questions to the tier
  std::optional<Residency> ResidencyOf(const NamespaceKey& key,
                                       std::span<const TokenId> tokens) const;
  void Announce();  // before the first request: from then on events say what can be resumed
  std::vector<BlockEvent> TakeBlockEvents();
  void AnnounceAgain();  // events were lost: all is told anew, some of it with each call
  bool announces_more() const { return announcer_ != nullptr && announcer_->repeats(); }
  const LeaseRecord& record(const Lease& lease) const;
  void NoteRestore(const Lease& lease, int64_t restore_ns);
  Actions& actions() { return actions_; }
  const StateSpec& spec() const { return options_.spec; }
  const CacheOptions& options() const { return options_.cache; }
  size_t block_bytes() const { return block_bytes_; }
  size_t state_bytes() const { return state_bytes_; }
  using Keeper::bytes_metadata;
  using Keeper::bytes_used;
  size_t pinned_bytes() const { return pins_.bytes(); }
  size_t ladder_bytes() const { return rung_count_ * state_bytes_; }
  uint32_t block_capacity() const { return blocks_.capacity(); }
  uint32_t state_capacity() const { return states_.capacity(); }
  // What a tenant has cached, and its share of the room for that.
  std::pair<size_t, size_t> BytesAndShareOf(std::string_view tenant) const;
  CacheStats stats() const;
  CacheStats& counters() { return stats_; }
  // What calls have looked at so far: tests count it.
  uint64_t record_looks() const { return records_.looks(); }
  uint64_t tenant_steps() const { return tenants_.steps(); }
  uint64_t path_blocks() const;
  std::vector<TreeNodeView> View(const NamespaceKey& key, size_t node_count_max,
                                 std::span<const TokenId> prompt) const;
  std::string Dump() const;
  Status CheckInvariants() const;

 private:
  using NamespaceMap = std::map<std::pair<std::string, std::string>, NodeId>;  // (salt, digest)
  class EntryKind;
  class SnapshotKind;
  class TailKind;
  class Spills;
  class Loads;
  // Waiting for another request costs a step or more; it must save at least this.
  static constexpr int32_t kAwaitTokensMin = 32;

  // state_index.cc
  LeaseRecord& RecordOf(const Lease& lease);
  NodeId RootOf(const NamespaceKey& key);
  void ForgetIfEmpty(NodeId root);
  size_t BlocksNeeded(const LeaseRecord& record) const;
  BlockNeed NeedOf(const LeaseRecord& record, int32_t token_count) const;
  Status ReserveBlocks(LeaseRecord& record, const BlockNeed& need);
  void TakeAhead(LeaseRecord& record, int32_t token_count);
  void BeginReading(LeaseRecord& record, EntryId entry);
  void EndReading(LeaseRecord& record);
  void EndReadingOf(EntryId entry);
  void Settle();
  bool ExpireSome(int count);
  bool GiveUpAhead() override;
  bool FreeCopies() override;
  size_t EntryCount() const override;
  size_t HeldByPins(NodeId node, bool pinned_below) const override;
  size_t BytesBeside() const override;
  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId node) override;
  void OnEntryMoved(EntryId entry, NodeId node) override;

  // drafts.cc
  int32_t TakeDraftBlocks(LeaseRecord& record, int32_t token_count, int32_t draft_count);
  int32_t TakeDraftStates(LeaseRecord& record, int32_t draft_count);
  void PassDraft(LeaseRecord& record);
  void FreeDrafts(LeaseRecord& record);

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
  void NoteSubject(LeaseRecord& record, const MatchResult& match);
  void Raise(const LeaseRecord& record, const RadixTree::Path& path, EntryId serving);
  void NameSubject(NodeId node, ScanGuard::Subject subject);

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
  void TakeSnapshot(LeaseRecord& record, const PlannedSnapshot& one, StateId state);
  static void NoteStored(LeaseRecord& record, const PlannedSnapshot& one);
  void SupersedeAbove(const LeaseRecord& record, NodeId node, int32_t position);
  void DropBehindWindow(LeaseRecord& record);

  // tiers.cc
  uint64_t NextMove() { return ++move_count_; }
  void CallOff(uint64_t move);
  size_t transfers() const;
  bool CancelOneMove() override;
  void CancelMovesOf(NodeId root);
  void ForgetRecord(TierRecordId id);
  bool ForgetOldestRecord() override;
  void BoundRecords();
  int64_t RecordsSinceMs() const;
  NamespaceKey KeyOfRoot(NodeId root) const;

  // check.cc
  Status CheckNodes() const;
  Status CheckRefs() const;
  Status CheckEntries() const;
  Status CheckReaders() const;
  std::string DescribeNode(NodeId node) const;
  TreeNodeView ViewOf(NodeId node, int depth, std::span<const TokenId> prompt) const;

  std::unique_ptr<EntryKind> kind_;
  ConversationEnds ends_;                // of attention-only models
  Pieces<ScanGuard::Subject> subjects_;  // by node: what ends there
  Sessions sessions_;
  NamespaceMap namespaces_;
  std::unordered_map<NodeId, NamespaceMap::iterator> namespace_of_;  // by root
  std::vector<NodeId> maybe_empty_;                                  // roots that lost a child
  Flights flights_;
  size_t lease_bytes_ = 0;  // of the records of those that have started
  Tier* tier_ = nullptr;    // null: there is none
  std::unique_ptr<Spills> spills_;
  std::unique_ptr<Loads> loads_;
  uint64_t move_count_ = 0;
  std::vector<Move> moves_;  // not begun yet
  size_t ghost_tokens_max_;
};

}  // namespace reprise
