// SPDX-License-Identifier: Apache-2.0
// Keeper: what an entry is worth, and whether it stands in the order.
#include <algorithm>
#include <array>
#include <utility>

#include "cache/index/keep/keeper.h"

namespace reprise {

// Rungs of the ladder from the end go before everything else, the oldest first; then what only
// requests of low priority have stored.
double Keeper::KeyOf(const EntryFacts& facts) const {
  constexpr double kBefore = 1e13;  // milliseconds: more than any clock shows
  if (facts.is_snapshot && facts.reason == SnapshotReason::kEdit) {
    return static_cast<double>(facts.used_ms) - 2 * kBefore;
  }
  return options_.policy->Key(facts) - (facts.low ? kBefore : 0);
}

// What it costs to have the state of [from, upto) again, which ends in the node: to compute it, or
// to load it where a lower tier has it.
double Keeper::LossOf(NodeId node, int32_t from, int32_t upto) const {
  const double compute = cost_.Recompute(from, upto);
  if (!records_.Covers(node, upto)) return compute;
  const size_t blocks = size_t(upto - from) / options_.block_tokens + 1;
  return std::min(compute, rates_.CostOfLoad(0, blocks * block_bytes_ + state_bytes_));
}

EntryFacts Keeper::FactsOf(EntryId id) const {
  const Entry& entry = order_[id];
  const int32_t tokens = options_.block_tokens;
  EntryFacts facts;
  facts.used_ms = entry.used_ms;
  facts.turns = entry.turns;
  facts.bulk_tokens = entry.bulk_tokens;
  facts.end = EndKindOf(entry);
  facts.superseded = entry.superseded;
  facts.beside = entry.beside;
  facts.low = entry.low;
  facts.reason = entry.reason;
  facts.is_snapshot = entry.snapshot.valid();
  const int32_t begin = tree_.begin(entry.node);
  if (!facts.is_snapshot) {
    const int32_t end = kv_->end(entry.node);
    const int32_t from = std::max(begin, (end - 1) / tokens * tokens);
    facts.cost = LossOf(entry.node, from, end) / cost_.Recompute(from, end);
    facts.bytes = 1;
    return facts;
  }
  const auto previous = recurrent_->Previous(entry.node, entry.position);
  const int32_t replay = previous ? previous->mark.position : 0;
  facts.cost = LossOf(entry.node, replay, entry.position);
  size_t bytes = state_bytes_;
  const bool last =
      !recurrent_->Next(entry.node, entry.position) && tree_.live_children(entry.node) == 0;
  if (has_kv() && last) {
    const int32_t kept = previous ? std::max(begin, previous->mark.position) : begin;
    const int32_t from = std::max(kept, kv_->FirstNeeded(entry.position));
    bytes += size_t(entry.position - from + tokens - 1) / tokens * block_bytes_;
  }
  facts.bytes = static_cast<double>(bytes);
  return facts;
}

EndKind Keeper::EndKindOf(SnapshotReason reason) {
  if (reason == SnapshotReason::kPromptEnd) return EndKind::kPromptEnd;
  return reason == SnapshotReason::kReplyEnd ? EndKind::kReplyEnd : EndKind::kNone;
}

EndKind Keeper::EndKindOf(const Entry& entry) const {
  if (entry.snapshot.valid()) return EndKindOf(entry.reason);
  return tree_.live_children(entry.node) == 0 ? EndKind::kTail : EndKind::kNone;
}

// The node holds K/V, perhaps for the first time: then its entry is `like` this one.
void Keeper::AfterTailChanged(NodeId node, const Entry& like) {
  if (!kv_->holds(node)) return;
  tails_.Grow(size_t{node.value} + 1);
  if (!tails_[node.value].valid()) {
    Entry entry = like;
    entry.node = node;
    entry.used_ms = now_ms_;
    tails_[node.value] = order_.Add(entry);
    fresh_.Extend(node, now_ms_ + options_.cache.ttl_ms);
  }
  if (order_[tails_[node.value]].pinned_until_ms > 0) BoundPins(tails_[node.value]);
  UpdateTail(node);
  UpdateTail(tree_.parent(node));
}

// Puts the node's tail into the eviction order or takes it out, as invariant (2) wants.
void Keeper::UpdateTail(NodeId node) {
  const EntryId id = TailOf(node);
  if (!id.valid()) return;
  Entry& entry = order_.Edit(id);
  const bool leaf = tree_.live_children(node) == 0;
  if (leaf != entry.leaf) {
    entry.leaf = leaf;
    leaf ? ++leaf_count_ : --leaf_count_;
  }
  if (leaf && entry.pinned_until_ms == 0 && !entry.parked && id != spared_) {
    order_.Push(id, KeyOf(FactsOf(id)));
  } else {
    order_.Pull(id);
  }
}

// The same for a snapshot.
void Keeper::Rekey(EntryId id) {
  const Entry& entry = order_[id];
  if (entry.pinned_until_ms > 0 || entry.spilling || entry.readers > 0 || id == spared_) {
    order_.Pull(id);
  } else {
    order_.Push(id, KeyOf(FactsOf(id)));
  }
}

void Keeper::Spare(EntryId entry) {
  for (const EntryId id : {std::exchange(spared_, entry), entry}) {
    if (!id.valid() || !order_.in_use(id)) continue;
    order_[id].snapshot.valid() ? Rekey(id) : UpdateTail(order_[id].node);
  }
}

// The policy has learnt something: keys are computed anew, a few in each step.
void Keeper::RekeySome(uint32_t count) {
  for (; count > 0 && rekey_left_ > 0; --count, --rekey_left_) {
    const EntryId id{rekey_next_ < order_.limit() ? rekey_next_ : 0};
    rekey_next_ = id.value + 1;
    if (order_.in_use(id) && order_.queued(id)) {
      order_.Push(id, KeyOf(FactsOf(id)));
    }
  }
}

void Keeper::UnparkAll() {
  for (const EntryId id : parked_) {
    if (!order_.in_use(id) || !order_[id].parked) continue;
    order_.Edit(id).parked = false;
    UpdateTail(order_[id].node);
  }
  parked_.clear();
}

// Pins may hold half of the budget, each tenant's its share of that while others pin, too. And
// they hold within their tenant's share of the cache: see NextVictim.
size_t Keeper::PinnedBytesMax() const { return options_.cache.budget_bytes / 2; }

size_t Keeper::KvBytesUpTo(NodeId node, int32_t upto) const {
  return has_kv() ? kv_->CountBlocks(node, upto) * block_bytes_ : 0;
}

void Keeper::PinEntry(EntryId id, int64_t pin_ms) {
  Unpin(id);
  if (pin_ms <= 0) return;
  Entry& entry = order_.Edit(id);
  entry.pinned_until_ms = now_ms_ + pin_ms;
  pins_.Add({id, entry.owner, entry.pinned_until_ms}, entry.node);
  BoundPins(id);
  if (entry.pinned_until_ms == 0) return;
  fresh_.Extend(entry.node, entry.pinned_until_ms);
  order_.Pull(id);
}

// The pin `id` is new, or holds more than before. If pins hold too much now, those of tenants go
// that have more than their share of what pins may hold; `id` itself if its tenant is one of them.
void Keeper::BoundPins(EntryId id) {
  const uint32_t owner = order_[id].owner;
  while (pins_.bytes() > PinnedBytesMax()) {
    std::array<size_t, Tenants::kOwnersMax> bytes{};
    for (uint32_t i = 0; i < tenants_.size(); ++i) bytes[i] = pins_.bytes_of(i);
    const Tenants::Mask over = tenants_.OverShare(bytes, owner, PinnedBytesMax());
    const auto first = (over >> owner & 1) == 0 ? pins_.First(over) : std::nullopt;
    if (!first || first->second == id) return Unpin(id);
    Unpin(first->second);
  }
}

void Keeper::Unpin(EntryId id) {
  Entry& entry = order_.Edit(id);
  if (entry.pinned_until_ms == 0) return;
  const int64_t until_ms = std::exchange(entry.pinned_until_ms, 0);
  pins_.Remove({id, entry.owner, until_ms}, entry.node);
  if (entry.snapshot.valid()) {
    Rekey(id);
  } else {
    UpdateTail(entry.node);
  }
}

void Keeper::ExpirePins() {
  for (auto pin = pins_.First(); pin && pin->first <= now_ms_; pin = pins_.First()) {
    Unpin(pin->second);
  }
}

}  // namespace reprise
