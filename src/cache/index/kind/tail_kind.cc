// SPDX-License-Identifier: Apache-2.0
// Entries that are the K/V tails of nodes: models without recurrent state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"
#include "cache/index/moves/spills.h"

namespace reprise {

EntryId StateIndex::TailKind::ServingAt(const RadixTree::Path& path, int32_t position) const {
  EntryId tail;
  for (const RadixTree::PathStep& step : path) {
    if (index_.tree_.begin(step.node) < position) tail = index_.tails_[step.node.value];
  }
  return tail;
}

// The prompt goes on from where an earlier request ended, or nearly (the opening of a reply may be
// rendered anew).
void StateIndex::TailKind::NoteStart(LeaseRecord& record, const MatchResult& match) {
  if (record.idle || match.path.empty()) return;
  const NodeId node = match.path.back().node;
  if (match.known + index_.options_.block_tokens < index_.tree_.end(node)) return;
  const auto end = index_.ends_.Continue(node);
  if (!end) return;
  record.turns = end->turns + 1;
  const int64_t age_ms = index_.now_ms_ - end->left_ms;
  const EndFacts facts{EndKind::kTail, end->turns, end->bulk_tokens, index_.now_ms_};
  if (index_.options_.policy->NoteReuse(facts, age_ms)) {
    index_.rekey_left_ = index_.order_.limit();
  }
}

bool StateIndex::TailKind::StillPromises(const LeaseRecord& flight, int32_t position) const {
  return position - flight.published >= kAwaitTokensMin;
}

// Whole blocks, and the end of the prompt. Those of a reply follow some rows after they are full,
// so that sequences which come to the end of a block in the same step publish in different ones.
bool StateIndex::TailKind::PublishComputed(LeaseRecord& record, int32_t before) {
  const int32_t computed = record.computed.logical, tokens = index_.options_.block_tokens;
  const bool whole = computed == record.prompt_tokens;
  const int32_t early = before < record.prompt_tokens ? 0 : tokens - record.turn_of(tokens);
  if (!whole && (before + early) / tokens == (computed + early) / tokens) return false;
  index_.Publish(record, whole ? computed : computed / tokens * tokens);
  return true;
}

void StateIndex::TailKind::Finish(LeaseRecord& record) {
  if (record.computed.logical == 0) return;
  index_.Publish(record, record.computed.logical);
  if (record.published != record.computed.logical) return;  // no room, not even for nodes
  NoteEnd(record);
  index_.spills_->Wish(record, record.published, SnapshotReason::kReplyEnd);
}

// A request has ended here.
void StateIndex::TailKind::NoteEnd(LeaseRecord& record) {
  if (record.idle) return;
  const NodeId node = index_.tree_.Resolve(record.cursor).node;
  index_.ends_.Add(node, {index_.now_ms_, record.turns, record.bulk_tokens});
  index_.options_.policy->NoteEnd(
      {EndKind::kTail, record.turns, record.bulk_tokens, index_.now_ms_});
}

void StateIndex::TailKind::PublishLoad(LeaseRecord& record) {
  index_.Publish(record, record.prompt_tokens);
}

void StateIndex::TailKind::AfterAttach(NodeId node, const LeaseRecord& record) {
  Entry like;
  like.turns = record.turns;
  like.owner = record.owner;
  like.bulk_tokens = record.bulk_tokens;
  like.cold = record.cold || record.low;
  like.low = record.low;
  like.beside = record.beside;
  index_.AfterTailChanged(node, like);
}

void StateIndex::TailKind::NoteUse(EntryId id) {
  EvictionOrder& order = index_.order_;
  order.Touch(id, index_.now_ms_);
  index_.fresh_.Extend(order[id].node, index_.now_ms_ + index_.options_.cache.ttl_ms);
  ++order.Edit(id).turns;
  index_.UpdateTail(order[id].node);
}

// Branches inside a block copied it. Where the sequence that wrote the original has been evicted,
// only an inner node refers to it, for rows that the copies have too. Returns true if that freed a
// block; nothing is lost by it. For when all leaves are in use: only then is it worth the walk.
bool StateIndex::TailKind::FreeCopies() {
  const uint32_t before = index_.blocks_.used_count();
  const auto climb = [this](NodeId node) {
    const RadixTree& tree = index_.tree_;
    for (NodeId above = tree.parent(node); !tree.IsRoot(above); above = tree.parent(above)) {
      index_.kv_->TakeFromBelow(above, node);
      node = above;
    }
  };
  for (const EntryId id : index_.parked_) {
    if (index_.order_.in_use(id) && index_.order_[id].parked) climb(index_.order_[id].node);
  }
  index_.pins_.ForEach([&](EntryId id) { climb(index_.order_[id].node); });
  return index_.blocks_.used_count() < before;
}

void StateIndex::TailKind::DropAll(NodeId node) {
  const EntryId tail = index_.TailOf(node);
  if (tail.valid()) index_.DropTail(tail, EvictReason::kReset);
}

size_t StateIndex::TailKind::count() const { return index_.leaf_count_; }

size_t StateIndex::TailKind::HeldByPins(NodeId node, bool /*pinned_below*/) const {
  return index_.KvBytesUpTo(node, index_.tree_.end(node));
}

int32_t StateIndex::TailKind::PositionOf(const Entry& entry) const {
  return index_.kv_->end(entry.node);
}

int64_t StateIndex::TailKind::UsedMs(NodeId node) const {
  const EntryId tail = index_.TailOf(node);
  return tail.valid() ? index_.order_[tail].used_ms : -1;
}

// The entry stays with the tail; the other half, if it holds K/V, gets one as old.
void StateIndex::TailKind::OnSplit(NodeId upper, NodeId lower) {
  const EntryId tail = index_.TailOf(lower);
  if (!tail.valid()) return;
  auto& tails = index_.tails_;
  tails.Grow(size_t{upper.value} + 1);
  if (!index_.kv_->holds(lower)) {
    std::swap(tails[upper.value], tails[lower.value]);
    index_.OnEntryMoved(tail, upper);
    return;
  }
  Entry entry = index_.order_[tail];
  entry.node = upper;
  entry.pinned_until_ms = 0;
  entry.leaf = entry.parked = false;
  tails[upper.value] = index_.order_.Add(entry);
}

void StateIndex::TailKind::OnRemove(NodeId node) {
  CHECK(!index_.TailOf(node).valid());
  index_.ends_.OnRemove(node);
}

// Invariant (2) of Keeper.
Status StateIndex::TailKind::CheckNode(NodeId node) const {
  const EntryId id = index_.TailOf(node);
  if (id.valid() != index_.kv_->holds(node)) {
    return Internal(fmt::format("node #{}: K/V and its entry disagree", node.value));
  }
  if (!id.valid()) return OkStatus();
  const Entry& entry = index_.order_[id];
  const bool leaf = index_.tree_.live_children(node) == 0;
  const bool queued = leaf && entry.pinned_until_ms == 0 && !entry.parked;
  if (!index_.order_.in_use(id) || entry.node != node || entry.leaf != leaf ||
      index_.order_.queued(id) != queued) {
    return Internal(fmt::format("node #{}: its entry stands wrongly in the order", node.value));
  }
  return OkStatus();
}

}  // namespace reprise
