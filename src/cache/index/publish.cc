// SPDX-License-Identifier: Apache-2.0
// StateIndex: what running sequences have computed becomes tree.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"
#include "cache/index/moves/spills.h"

namespace reprise {

// Room for the nodes that one insertion may add (a split and a leaf).
bool StateIndex::MakeRoomForNodes() {
  while (tree_.node_count() + 2 > node_count_max_) {
    const size_t ghosts = tree_.ghost_token_count();
    if (ghosts > 0) tree_.PurgeGhosts(ghosts - 1);  // the oldest one
    if (tree_.ghost_token_count() < ghosts) continue;
    if (!EvictOne(EvictReason::kMetadata, std::numeric_limits<double>::infinity(), PinsGo::kAll) &&
        !ForgetOldestRecord()) {
      return false;
    }
  }
  return true;
}

// Makes the tokens [published, upto) known and moves the lease's cursor behind them.
void StateIndex::AdvanceCursor(LeaseRecord& record, int32_t upto) {
  const auto tokens =
      std::span<const TokenId>(record.tokens).subspan(record.published, upto - record.published);
  const RadixTree::Cursor next = tree_.Insert(record.cursor, tokens);
  tree_.Ref(next.node);
  tree_.Unref(record.cursor.node);
  record.cursor = next;
  record.published = upto;
  if (upto > record.prompt_tokens - options_.block_tokens) NameSubject(next.node, record.subject);
}

// Gives the tree the blocks of [0, published) that it does not hold yet, and takes the tree's where
// another sequence was faster. `from` is where the cursor stood before it advanced.
void StateIndex::AttachBlocks(LeaseRecord& record, int32_t from) {
  if (!has_kv()) return;
  const int32_t upto = record.published;
  const bool gaps = kind_->leaves_gaps();
  from = std::min(from, record.shared_blocks * options_.block_tokens);
  std::vector<NodeId> path;  // from the cursor up to what is certainly held
  for (NodeId node = record.cursor.node; !tree_.IsRoot(node); node = tree_.parent(node)) {
    path.push_back(node);
    if (tree_.begin(node) > from) continue;
    const NodeId above = tree_.parent(node);
    if (tree_.IsRoot(above) || (gaps ? tree_.begin(node) <= kv_->FirstNeeded(upto)
                                     : kv_->end(above) == tree_.end(above))) {
      break;
    }
  }
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    // What was held with a gap may be whole from now on.
    const int32_t held = kv_->gaps() ? std::min(from, kv_->end(*node)) : kv_->end(*node);
    const int32_t first = gaps ? kv_->FirstNeeded(upto) : held;
    kv_->Attach(*node, first, std::min(tree_.end(*node), upto), record.table);
    pins_.Update(*node);
    NoteChange(*node);
    kind_->AfterAttach(*node, record);
  }
  ShareBlocks(record, path, upto);
}

// Whole blocks that the tree has too are not needed twice. They hold the same bits, unless somebody
// has gone on from rounded state: who started from nothing stays exact.
void StateIndex::ShareBlocks(LeaseRecord& record, const std::vector<NodeId>& path, int32_t upto) {
  const int32_t tokens = options_.block_tokens;
  auto node = path.rbegin();
  const bool alike = tier_ == nullptr || !tier_->rounds();
  for (int32_t g = record.shared_blocks; alike && g < upto / tokens; ++g) {
    const int32_t last = (g + 1) * tokens - 1;
    while (node != path.rend() && tree_.end(*node) <= last) ++node;
    CHECK(node != path.rend() && tree_.begin(*node) <= last);
    const BlockId theirs = kv_->block_at(*node, last);
    BlockId& mine = record.table[g];
    if (!theirs.valid() || !mine.valid() || theirs == mine) continue;
    blocks_.RefLease(theirs);
    blocks_.UnrefLease(mine);
    mine = theirs;
  }
  record.shared_blocks = std::max(record.shared_blocks, upto / tokens);
}

void StateIndex::Publish(LeaseRecord& record, int32_t upto) {
  if (upto <= record.published || !MakeRoomForNodes()) return;
  const int32_t from = record.published;
  AdvanceCursor(record, upto);
  AttachBlocks(record, from);
  record.report.stored_tokens = upto;
  const EntryId entry = tails_[record.cursor.node.value];
  if (!record.idle) {
    order_.Touch(entry, now_ms_);
    order_.Edit(entry).bulk_tokens = record.bulk_tokens;
    order_.SetCold(entry, record.cold || record.low);
  }
  fresh_.Extend(record.cursor.node, now_ms_ + options_.cache.ttl_ms);
  if (record.pin_ms > 0 && upto >= record.prompt_tokens) {
    PinEntry(entry, record.pin_ms);
    spills_->Wish(record, upto, SnapshotReason::kPromptEnd);
  }
  UpdateTail(record.cursor.node);
  EnforceEntryLimit();
}

// Room for a snapshot there, if it is worth more than what would have to go. `replay` is the
// position that a lookup would have to start from without it.
bool StateIndex::MakeRoomForPlanned(LeaseRecord& record, const PlannedSnapshot& one,
                                    int32_t replay) {
  const size_t blocks = size_t(one.position - record.snapshot_at) / options_.block_tokens + 1;
  const EntryFacts facts{.cost = cost_.Recompute(replay, one.position),
                         .bytes = double(state_bytes_ + blocks * block_bytes_),
                         .used_ms = now_ms_,
                         .end = EndKindOf(one.reason),
                         .turns = record.turns,
                         .bulk_tokens = record.bulk_tokens,
                         .is_snapshot = true,
                         .reason = one.reason,
                         .beside = record.beside && EndKindOf(one.reason) != EndKind::kNone,
                         .low = record.low};
  newcomer_cold_ = record.cold || record.low || one.reason == SnapshotReason::kEdit;
  if (one.reason == SnapshotReason::kEdit) return MakeRoomForRung(KeyOf(facts));
  // Idle work claims no share: that could cost others a pin.
  if (MakeRoomForSnapshot(KeyOf(facts), !record.idle)) return true;
  ++stats_.snapshots_declined;
  ++record.report.snapshots_declined;
  return false;
}

// Memory for the snapshots that lie inside the next step, before it ends at `upto`.
void StateIndex::ReservePending(LeaseRecord& record, int32_t upto) {
  if (!record.may_publish() || record.prompt_tokens < record.min_cache_tokens) return;
  int32_t replay = record.snapshot_at;
  for (const PlannedSnapshot& one : record.planned) {
    if (one.position <= record.computed.logical || one.position > upto) continue;
    if (one.position == upto && !options_.fills_beside) continue;  // a copy, when it is there
    if (!MakeRoomForPlanned(record, one, replay)) continue;
    record.pending.push_back({one.position, AllocateSnapshot(one.reason)});
    record.pending_reasons.push_back(one.reason);
    replay = one.position;
  }
}

void StateIndex::FreePending(LeaseRecord& record) {
  if (record.pending.empty()) return;
  for (size_t i = 0; i < record.pending.size(); ++i) {
    FreeSnapshot(record.pending[i].state, record.pending_reasons[i]);
  }
  record.pending.clear();
  record.pending_reasons.clear();
}

// The step filled those that it passed: they become entries.
void StateIndex::PublishPending(LeaseRecord& record) {
  for (size_t i = 0; i < record.pending.size(); ++i) {
    if (record.pending[i].position >
        record.computed.logical) {  // the step was shorter than reserved
      FreeSnapshot(record.pending[i].state, record.pending_reasons[i]);
      continue;
    }
    TakeSnapshot(record, {record.pending[i].position, record.pending_reasons[i]},
                 record.pending[i].state);
  }
  record.pending.clear();
  record.pending_reasons.clear();
}

// A rung is the first to go: what is planned behind it does not count on it.
void StateIndex::NoteStored(LeaseRecord& record, const PlannedSnapshot& one) {
  record.report.stored_tokens = one.position;
  if (one.reason == SnapshotReason::kEdit) return;
  record.snapshot_at = one.position;
}

// Publishes the state at that position: `state` is it from now on, or, if that is invalid, a copy
// of the live one.
void StateIndex::TakeSnapshot(LeaseRecord& record, const PlannedSnapshot& one, StateId state) {
  if (!MakeRoomForNodes()) {
    if (state.valid()) FreeSnapshot(state, one.reason);
    ++stats_.snapshots_declined;
    ++record.report.snapshots_declined;
    return;
  }
  const int32_t from = record.published;
  AdvanceCursor(record, one.position);
  const NodeId node = record.cursor.node;
  const auto mark = recurrent_->Deepest(node, one.position);
  if (mark && mark->position == one.position) {  // another sequence was faster
    if (state.valid()) FreeSnapshot(state, one.reason);
    NoteStored(record, one);
    AttachBlocks(record, from);
    return;
  }
  if (!state.valid()) {
    const auto previous = recurrent_->Previous(node, one.position);
    if (!MakeRoomForPlanned(record, one, previous ? previous->mark.position : 0)) return;
    state = AllocateSnapshot(one.reason);
    actions_.push_back({Action::Verb::kCopyState, record.state.value, state.value});
  }
  AttachBlocks(record, from);
  Entry entry;
  entry.node = node;
  entry.position = one.position;
  entry.reason = one.reason;
  entry.used_ms = now_ms_;
  entry.snapshot = state;
  entry.owner = record.owner;
  entry.bulk_tokens = record.bulk_tokens;
  entry.cold = record.cold || record.low || one.reason == SnapshotReason::kEdit;
  entry.low = record.low;
  entry.beside = record.beside && EndKindOf(one.reason) != EndKind::kNone;
  if (snapshots_of_.size() <= record.owner) snapshots_of_.resize(record.owner + 1);
  ++snapshots_of_[record.owner];
  const EndKind kind = EndKindOf(one.reason);
  if (kind != EndKind::kNone) entry.turns = record.turns;
  const EntryId id = order_.Add(entry);
  recurrent_->Add(node, one.position, id);
  NoteChange(node);
  Rekey(id);
  if (const auto next = recurrent_->Next(node, one.position)) Rekey(next->entry);
  NoteStored(record, one);
  if (record.load) return EnforceEntryLimit();
  ++stats_.snapshots_taken[static_cast<size_t>(one.reason)];
  if (one.reason != SnapshotReason::kEdit) ++record.report.snapshots_taken;
  if (record.pin_ms > 0 && one.reason != SnapshotReason::kEdit) PinEntry(id, record.pin_ms);
  if (kind != EndKind::kNone) {
    if (!record.idle) options_.policy->NoteEnd({kind, record.turns, record.bulk_tokens, now_ms_});
    SupersedeAbove(record, node, one.position);
  }
  spills_->Wish(record, one.position, one.reason);
  EnforceEntryLimit();
}

// The conversation has moved on: the ends and messages of earlier turns serve only edits from now
// on. What others share (system, branch, breakpoints) stays what it was, and so does what this
// request has stored itself: whether the next one goes on behind the reply or behind the prompt is
// not known yet.
void StateIndex::SupersedeAbove(const LeaseRecord& record, NodeId node, int32_t position) {
  position = std::min(position, record.report.used_tokens + 1);
  for (auto place = recurrent_->Previous(node, position); place;
       place = recurrent_->Previous(place->node, place->mark.position)) {
    Entry& entry = order_.Edit(place->mark.entry);
    if (entry.superseded) return;  // and so are those above it
    const bool passed = entry.reason == SnapshotReason::kPromptEnd ||
                        entry.reason == SnapshotReason::kReplyEnd ||
                        entry.reason == SnapshotReason::kMessage;
    // A second conversation goes through here: it is shared after all.
    const bool shared =
        tree_.live_children(place->node) > 1 && place->mark.position == tree_.end(place->node);
    if (!passed || shared) continue;
    entry.superseded = true;
    order_.SetCold(place->mark.entry, true);
    Rekey(place->mark.entry);
  }
}

// A running sequence of a window-only model needs no blocks that have left the window.
void StateIndex::DropBehindWindow(LeaseRecord& record) {
  if (!has_kv()) return;
  const int32_t first = kv_->FirstNeeded(record.computed.physical) / options_.block_tokens;
  for (int32_t g = first - 1; g >= 0 && record.table[g].valid(); --g) {
    blocks_.UnrefLease(record.table[g]);
    record.table[g] = BlockId();
  }
}

}  // namespace reprise
