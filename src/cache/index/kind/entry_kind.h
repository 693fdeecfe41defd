// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cache/index/state_index.h"

namespace reprise {

// What an entry is decides how state is found, left behind and given up:
//
//                            snapshots (models with            tails (all others)
//                            recurrent state)
//  a match may end           at a snapshot                     anywhere in what K/V holds
//  a sequence leaves         a snapshot where one was          its whole blocks, and all when it
//                            planned, with the K/V above it    ends
//  others wait for           a position that is planned        all that both prompts share
//  the policy learns from    the snapshot that served          ends that were continued
//
// The index asks its kind of entries, never the model.
class StateIndex::EntryKind {
 public:
  explicit EntryKind(StateIndex* index) : index_(*index) {}
  virtual ~EntryKind() = default;

  // Looking up. REQUIRES: components serve the position, which is not 0.
  virtual bool Expired(const RadixTree::Path& path, int32_t position) const = 0;
  virtual EntryId ServingAt(const RadixTree::Path& path, int32_t position) const = 0;
  virtual bool WasEvicted(const RadixTree::Path& path, int32_t above, int32_t upto) const = 0;

  // Starting: the live state of the sequence, a copy of that of `entry` or zeros; then what is to
  // be remembered of the match, and which snapshots to take.
  virtual Status TakeState(LeaseRecord& record, EntryId entry) = 0;
  virtual void NoteStart(LeaseRecord& record, const MatchResult& match) = 0;
  // How far into the `common` prefix the flight will publish, if not only up to `above`; and
  // whether what it promised is still to come.
  virtual int32_t Promised(LeaseRecord& flight, int32_t common, int32_t above) const = 0;
  virtual bool StillPromises(const LeaseRecord& flight, int32_t position) const = 0;

  // Publishing: what a step from position `before` on has made complete (false: nothing was); what
  // a sequence leaves at its end; what a load has brought.
  virtual bool PublishComputed(LeaseRecord& record, int32_t before) = 0;
  virtual void Finish(LeaseRecord& record) = 0;
  virtual void PublishLoad(LeaseRecord& record) = 0;
  virtual void AfterAttach(NodeId node, const LeaseRecord& record) = 0;
  virtual bool leaves_gaps() const = 0;  // in the K/V behind which it publishes
  virtual uint32_t states_per_sequence() const = 0;
  // Memory for the state that a load brings, which ends at `position`.
  virtual bool TakeStateToLoad(LeaseRecord& record, int32_t position, SnapshotReason reason,
                               Move* move) = 0;

  // Keeping and giving up.
  virtual void NoteUse(EntryId id) = 0;  // it has served a request
  virtual bool FreeCopies() = 0;         // of blocks that nothing else refers to
  virtual void DropAll(NodeId node) = 0;
  virtual size_t count() const = 0;
  virtual size_t HeldByPins(NodeId node, bool pinned_below) const = 0;
  virtual bool GoesDown(const Entry& entry) const = 0;  // somebody may continue it
  virtual int32_t PositionOf(const Entry& entry) const = 0;
  virtual int64_t UsedMs(NodeId node) const = 0;  // the last use of what the node has; -1: nothing
  virtual std::vector<int32_t> SnapshotsAt(NodeId node) const = 0;

  virtual void OnSplit(NodeId upper, NodeId lower) = 0;
  virtual void OnRemove(NodeId node) = 0;
  virtual Status CheckNode(NodeId node) const = 0;

 protected:
  StateIndex& index_;
};

class StateIndex::SnapshotKind final : public EntryKind {
 public:
  using EntryKind::EntryKind;
  bool Expired(const RadixTree::Path& path, int32_t position) const override;
  EntryId ServingAt(const RadixTree::Path& path, int32_t position) const override;
  bool WasEvicted(const RadixTree::Path& path, int32_t above, int32_t upto) const override;
  Status TakeState(LeaseRecord& record, EntryId entry) override;
  void NoteStart(LeaseRecord& record, const MatchResult& match) override;
  int32_t Promised(LeaseRecord& flight, int32_t common, int32_t above) const override;
  bool StillPromises(const LeaseRecord& flight, int32_t position) const override;
  bool PublishComputed(LeaseRecord& record, int32_t before) override;
  void Finish(LeaseRecord& record) override;
  void PublishLoad(LeaseRecord& record) override;
  void AfterAttach(NodeId, const LeaseRecord&) override {}
  bool leaves_gaps() const override;
  uint32_t states_per_sequence() const override { return 1; }
  bool TakeStateToLoad(LeaseRecord& record, int32_t position, SnapshotReason reason,
                       Move* move) override;
  void NoteUse(EntryId id) override;
  bool FreeCopies() override { return false; }  // what is not leased can all go
  void DropAll(NodeId node) override;
  size_t count() const override;
  size_t HeldByPins(NodeId node, bool pinned_below) const override;
  bool GoesDown(const Entry& entry) const override;
  int32_t PositionOf(const Entry& entry) const override { return entry.position; }
  int64_t UsedMs(NodeId node) const override;
  std::vector<int32_t> SnapshotsAt(NodeId node) const override;
  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId) override {}
  Status CheckNode(NodeId node) const override;

 private:
  void Plan(LeaseRecord& record, const MatchResult& match);
  bool FinishTakesSnapshot(const LeaseRecord& record) const;
};

class StateIndex::TailKind final : public EntryKind {
 public:
  using EntryKind::EntryKind;
  bool Expired(const RadixTree::Path&, int32_t) const override { return false; }  // see Freshness
  EntryId ServingAt(const RadixTree::Path& path, int32_t position) const override;
  bool WasEvicted(const RadixTree::Path&, int32_t, int32_t) const override { return false; }
  Status TakeState(LeaseRecord&, EntryId) override { return OkStatus(); }
  void NoteStart(LeaseRecord& record, const MatchResult& match) override;
  int32_t Promised(LeaseRecord&, int32_t common, int32_t) const override { return common; }
  bool StillPromises(const LeaseRecord& flight, int32_t position) const override;
  bool PublishComputed(LeaseRecord& record, int32_t before) override;
  void Finish(LeaseRecord& record) override;
  void PublishLoad(LeaseRecord& record) override;
  void AfterAttach(NodeId node, const LeaseRecord& record) override;
  bool leaves_gaps() const override { return false; }
  uint32_t states_per_sequence() const override { return 0; }
  bool TakeStateToLoad(LeaseRecord&, int32_t, SnapshotReason, Move*) override { return true; }
  void NoteUse(EntryId id) override;
  bool FreeCopies() override;
  void DropAll(NodeId node) override;
  size_t count() const override;
  size_t HeldByPins(NodeId node, bool pinned_below) const override;
  bool GoesDown(const Entry& entry) const override { return entry.leaf && !entry.low; }
  int32_t PositionOf(const Entry& entry) const override;
  int64_t UsedMs(NodeId node) const override;
  std::vector<int32_t> SnapshotsAt(NodeId) const override { return {}; }
  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId node) override;
  Status CheckNode(NodeId node) const override;

 private:
  void NoteEnd(LeaseRecord& record);
};

}  // namespace reprise
