// SPDX-License-Identifier: Apache-2.0
// Keeper: who goes, and what goes with it.
#include <limits>

#include "base/check.h"
#include "cache/index/keep/keeper.h"

namespace reprise {
namespace {

constexpr double kAnyKey = std::numeric_limits<double>::infinity();

}  // namespace

// The entry with the smallest key, if that is below the bound, of the tenants that have more than
// their share. What they have pinned is unpinned if nothing else of theirs can go; where it may not
// be, there is no victim. Of all tenants, if those have nothing that can go at all, but not to
// cache something more. Keys may have risen since they were computed (a neighbour went, so more
// would be replayed): then the entry moves and we look again.
EntryId Keeper::NextVictim(double below_key, PinsGo pins) {
  Tenants::Mask owners = OverShare();
  const bool claims = claim_.running + claim_.cached > 0;
  while (tenants_.size() > 1 && !order_.Min(owners).valid()) {
    const auto pin = pins_.First(owners);
    if (pin && claims && pins == PinsGo::kNone) return EntryId();
    if (!pin || pins == PinsGo::kNone) break;
    Unpin(pin->second);
  }
  if (!order_.Min(owners).valid()) {
    if (claims && claim_.running == 0 && owners != 0) return EntryId();
    owners = Tenants::kAll;
  }
  const bool cold_first = guard_.resists() && options_.policy->resists_scans();
  while (true) {
    const EntryId id = order_.Min(owners, cold_first);
    if (!id.valid()) return EntryId();
    const bool gives_way = cold_first && order_[id].cold && !newcomer_cold_;
    if (!gives_way && order_.key(id) >= below_key) return EntryId();
    const double key = KeyOf(FactsOf(id));
    if (key <= order_.key(id)) return id;
    order_.Push(id, key);
  }
}

bool Keeper::EvictOne(EvictReason why, double below_key, PinsGo pins) {
  while (true) {
    EntryId id = NextVictim(below_key, pins);
    if (!id.valid()) {
      if (pins != PinsGo::kAll) return false;
      if (FreeCopies()) return true;
      const auto pin = pins_.First();
      if (!pin) return false;
      Unpin(pin->second);  // and look again: it may be an inner node that others must leave first
      continue;
    }
    if (order_[id].snapshot.valid()) {
      DropSnapshot(id, why);
      return true;
    }
    if (EvictTailBlock(id, why)) return true;
  }
}

void Keeper::CountEvicted(const Entry& entry, EvictReason why) {
  const int64_t age_ms = now_ms_ - entry.used_ms;
  stats_.evicted_age_ms.Add(static_cast<uint64_t>(age_ms));
  const bool for_room = why != EvictReason::kReset && why != EvictReason::kExpired;
  if (for_room && !entry.superseded) options_.policy->NoteEvicted(EndKindOf(entry), age_ms);
  if (entry.snapshot.valid()) ++stats_.snapshots_evicted[static_cast<size_t>(why)];
}

// One block off the end of a leaf (of a window: first what lies before the window of its end).
// False if that would free nothing because a running request uses it.
bool Keeper::EvictTailBlock(EntryId id, EvictReason why) {
  const NodeId node = order_[id].node;
  const int32_t begin = tree_.begin(node), end = kv_->end(node);
  auto& evicted = stats_.blocks_evicted[static_cast<size_t>(why)];
  const uint32_t before = blocks_.used_count();
  kv_->DropRange(node, begin, kv_->FirstNeeded(end));
  if (blocks_.used_count() < before) {
    evicted += before - blocks_.used_count();
    return true;
  }
  const BlockId last = kv_->last_block(node);
  if (last.valid() && blocks_.lease_refs(last) > 0) {
    order_.Pull(id);
    order_.Edit(id).parked = true;
    parked_.push_back(id);
    return false;
  }
  const int32_t upto = (end - 1) / options_.block_tokens * options_.block_tokens;
  if (upto <= begin) {
    DropTail(id, why);
    return true;
  }
  kv_->Trim(node, upto);
  NoteChange(node);
  ++evicted;
  CountEvicted(order_[id], why);
  UpdateTail(node);
  return true;
}

// All K/V of a node. REQUIRES: no child holds K/V.
void Keeper::DropTail(EntryId id, EvictReason why) {
  const Entry entry = order_[id];
  const NodeId node = entry.node, above = tree_.parent(node);
  CHECK(tree_.live_children(node) == 0);
  CountEvicted(entry, why);
  stats_.blocks_evicted[static_cast<size_t>(why)] += kv_->blocks(node).size();
  Unpin(id);
  // The parent was used whenever the child was.
  if (!tree_.IsRoot(above) && order_[tails_[above.value]].used_ms < entry.used_ms) {
    order_.Touch(tails_[above.value], entry.used_ms);
  }
  if (entry.leaf) --leaf_count_;
  order_.Remove(id);
  tails_[node.value] = EntryId();
  kv_->Trim(node, tree_.begin(node));
  NoteChange(node);
  UpdateTail(above);
}

void Keeper::DropSnapshot(EntryId id, EvictReason why) {
  const Entry entry = order_[id];
  CHECK(!entry.spilling && entry.readers == 0);
  CountEvicted(entry, why);
  const uint32_t blocks_before = blocks_.used_count();
  Unpin(id);
  order_.Remove(id);
  --snapshots_of_[entry.owner];
  FreeSnapshot(entry.snapshot, entry.reason);
  const auto previous = recurrent_->Previous(entry.node, entry.position);
  recurrent_->Remove(entry.node, entry.position, why != EvictReason::kReset);
  NoteChange(entry.node);
  TrimUnreachable(entry.node, entry.position);
  stats_.blocks_evicted[static_cast<size_t>(why)] += blocks_before - blocks_.used_count();
  if (previous) Rekey(previous->mark.entry);  // it may be the last one now: more bytes hang on it
}

// K/V behind the last snapshot of a branch helps nobody: a match must end at a snapshot.
void Keeper::TrimUnreachable(NodeId node, int32_t position) {
  if (!has_kv()) return;
  if (const auto next = recurrent_->Next(node, position); next || tree_.live_children(node) > 0) {
    // With a window, what lies between the snapshots around the lost one may be a gap.
    const auto previous = recurrent_->Deepest(node, position);
    const int32_t needed = kv_->FirstNeeded(next ? next->position : tree_.end(node));
    kv_->DropRange(node, previous ? previous->position : tree_.begin(node), needed);
    pins_.Update(node);
    return;
  }
  while (!tree_.IsRoot(node) && tree_.live_children(node) == 0) {
    const NodeId above = tree_.parent(node);
    const auto deepest = recurrent_->Deepest(node, tree_.end(node));
    kv_->Trim(node, deepest ? deepest->position : tree_.begin(node));
    NoteChange(node);
    pins_.Update(node);
    if (deepest) return;
    node = above;
  }
}

bool Keeper::Expired(const Entry& entry) const {
  const int64_t ttl_ms = options_.cache.ttl_ms;
  return ttl_ms > 0 && entry.used_ms + ttl_ms <= now_ms_ && entry.pinned_until_ms == 0;
}

// Drops up to `count` entries that nobody has used for the ttl; true if there are more.
bool Keeper::ExpireEntries(int count) {
  if (options_.cache.ttl_ms <= 0) return false;
  for (EntryId id = order_.Oldest(); id.valid() && Expired(order_[id]); id = order_.Oldest()) {
    if (count-- == 0) return true;
    if (order_[id].snapshot.valid()) {
      DropSnapshot(id, EvictReason::kExpired);
    } else {
      DropTail(id, EvictReason::kExpired);
    }
  }
  return false;
}

void Keeper::EnforceEntryLimit() {
  const int64_t limit = options_.cache.entry_count_max;
  while (limit > 0 && EntryCount() > static_cast<size_t>(limit)) {
    const EntryId id = NextVictim(kAnyKey, PinsGo::kNone);
    if (!id.valid()) return;  // the rest is pinned or running
    if (order_[id].snapshot.valid()) {
      DropSnapshot(id, EvictReason::kEntryLimit);
    } else {
      DropTail(id, EvictReason::kEntryLimit);
    }
  }
}

}  // namespace reprise
