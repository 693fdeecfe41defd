// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "cache/index/state_index.h"

namespace reprise {

// What goes down: places where somebody may go on are wished for, and become moves when a tier has
// time for them. A spill holds the blocks that are read by a lease of its own.
//
// Thread safety: none.
class StateIndex::Spills {
 public:
  explicit Spills(StateIndex* index) : index_(*index) {}

  // Ends of conversations go down in idle time; what is pinned or meant to be shared at once, and
  // everything where others may want it.
  void Wish(const LeaseRecord& record, int32_t position, SnapshotReason reason);
  // Everything that somebody may go on from, in idle time, the most valuable first.
  void WishAll();
  bool wishes() const { return !now_.empty() || !idle_.empty(); }
  void BeginWanted() { BeginSome(&now_); }
  void BeginIdle() { BeginSome(&idle_); }

  bool Has(uint64_t move) const { return under_way_.contains(move); }
  void End(uint64_t move, const MoveDone& done);
  // Of those that slower levels still read few are waited for: what more there is these do not get,
  // so that the quicker ones are not held to their speed.
  void BoundLagging();

  void Cancel(uint64_t move);
  bool CancelOne();  // one that a level has, if there is such a one
  void CancelAll();
  void CancelOf(NodeId root);
  // The record is to be forgotten: nothing is written of it any more.
  void CancelRecord(TierRecordId record);

  size_t size() const { return under_way_.size(); }

 private:
  struct Wanted {
    RadixTree::Place place;
    SnapshotReason reason = SnapshotReason::kReplyEnd;
  };
  struct Spill {
    NamespaceKey key;
    std::vector<TokenId> tokens;
    uint32_t seat = 0;    // of its lease
    TierRecordId record;  // the one in the making
    EntryId entry;        // the snapshot that is read
    bool stored = false;  // a level has it, whatever becomes of this
    bool lags = false;    // ... since it began: a slower level still reads
  };
  using UnderWay = std::map<uint64_t, Spill>;  // by the id of the move

  void BeginSome(std::deque<Wanted>* wishes);
  void Begin(const Wanted& wish);
  bool MayBegin() const;
  bool Writes(TierRecordId record) const;
  bool Continues(const Records::Record& record) const;
  bool WasPassed(const Records::Record& record) const;
  const Records::Record* FirstPassed(const Records::Record* last) const;
  bool TakeBlocks(const RadixTree::Path& path, bool with_state, Move* move) const;
  void NoteStored(Spill* spill, const MoveDone& done);
  void Release(const Spill& spill);

  StateIndex& index_;
  UnderWay under_way_;
  std::deque<Wanted> now_;   // pinned, shared: at once
  std::deque<Wanted> idle_;  // ends of conversations: when there is time
};

}  // namespace reprise
