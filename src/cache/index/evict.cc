// SPDX-License-Identifier: Apache-2.0
// StateIndex: making room, and what goes with what.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

constexpr double kAnyKey = std::numeric_limits<double>::infinity();

}  // namespace

// Half of what is remembered only for reports. Returns true if that freed something.
bool StateIndex::PurgeSomeGhosts() {
  const size_t before = tree_.ghost_token_count();
  tree_.PurgeGhosts(before / 2);
  return tree_.ghost_token_count() < before;
}

// For running requests: everything that is only cached may go, pinned entries last (for idle work:
// not at all).
bool StateIndex::MakeRoom(const Units& units, size_t metadata, EvictReason why, bool even_pinned) {
  const size_t bytes = units.blocks * block_bytes_ + units.states * state_bytes_ + metadata;
  const Claiming claiming(&claim_, {claim_.owner, bytes, 0});
  refusal_ = OkStatus();
  while (bytes_used() + bytes > options_.cache.budget_bytes ||
         blocks_.used_count() + size_t{units.blocks} > blocks_.capacity() ||
         states_.used_count() + size_t{units.states} > states_.capacity()) {
    if (EvictOne(why, kAnyKey, false) || PurgeSomeGhosts()) continue;
    if (!even_pinned) return false;
    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, true) && !ForgetOldestRecord() &&
        !CancelOneMove()) {
      return false;
    }
  }
  while (!Backed(units)) {
    if (EvictOne(why, kAnyKey, false)) continue;
    if (!even_pinned) return false;
    if (!GiveUpAhead() && !EvictOne(why, kAnyKey, true) && !CancelOneMove()) return false;
  }
  return true;
}

bool StateIndex::GiveWay(size_t bytes) {
  const size_t before = bytes_used();
  while (bytes_used() + bytes > before && EvictOne(EvictReason::kRunning, kAnyKey, true)) {
  }
  Settle();
  return bytes_used() < before;
}

// Whether the device has memory for the units that would be taken next: the budget may be more than
// others have left of it.
bool StateIndex::Backed(const Units& units) {
  if (!options_.back || (units.blocks == 0 && units.states == 0)) return true;
  refusal_ = options_.back(blocks_.Next(units.blocks), states_.Next(units.states));
  return refusal_.ok();
}

// Why MakeRoom found none: `sentence`, or what the device said.
Status StateIndex::NoRoom(const std::string& sentence) const {
  if (refusal_.ok()) return ResourceExhausted(sentence);
  return ResourceExhausted(refusal_.message() +
                           ", and running requests hold the rest; run fewer at a time, shorten the "
                           "prompt or lower the budget");
}

// What this owner has cached, with what it is about to.
size_t StateIndex::CachedBytesOf(uint32_t owner) const {
  const size_t snapshots = owner < snapshots_of_.size() ? snapshots_of_[owner] : 0;
  return blocks_.cached_count(owner) * block_bytes_ + snapshots * state_bytes_ +
         (owner == claim_.owner ? claim_.cached : 0);
}

// The owner's share of what running requests leave, what they are about to take taken off.
size_t StateIndex::ShareOf(uint32_t owner) const {
  const size_t free = BytesFree();
  return tenants_.ShareOf(owner, free - std::min(free, claim_.running), [this](uint32_t other) {
    return other == claim_.owner || CachedBytesOf(other) > 0;
  });
}

// Those that have more than their share: at their cost room is made.
Tenants::Mask StateIndex::OverShare() const {
  if (tenants_.size() <= 1) return Tenants::kAll;
  const size_t free = BytesFree(), pool = free - std::min(free, claim_.running);
  std::array<size_t, Tenants::kOwnersMax> bytes{};
  Tenants::Mask claims = Tenants::Mask{1} << claim_.owner;
  for (uint32_t owner = 0; owner < tenants_.size(); ++owner) {
    bytes[owner] = CachedBytesOf(owner);
    if (bytes[owner] > 0) claims |= Tenants::Mask{1} << owner;
  }
  Tenants::Mask over = 0;
  for (uint32_t owner = 0; owner < tenants_.size(); ++owner) {
    const size_t share =
        tenants_.ShareOf(owner, pool, [claims](uint32_t other) { return claims >> other & 1; });
    if (bytes[owner] > share) over |= Tenants::Mask{1} << owner;
  }
  return over;
}

// For a snapshot: only what is worth less than itself; or, as long as its tenant has less than its
// share, what others have above theirs.
bool StateIndex::MakeRoomForSnapshot(double key, bool claims_share) {
  const Claiming claiming(&claim_, {claim_.owner, 0, state_bytes_});
  while (bytes_used() + state_bytes_ > options_.cache.budget_bytes || states_.full() ||
         !Backed({.states = 1})) {
    const bool due = claims_share && (OverShare() >> claim_.owner & 1) == 0;
    if (!EvictOne(EvictReason::kSnapshot, due ? kAnyKey : key, false) && !GiveUpAhead()) {
      return false;
    }
  }
  return true;
}

// Rungs of the ladder from the end go before everything else, the oldest first.
double StateIndex::KeyOf(const EntryFacts& facts) const {
  constexpr double kBefore = 1e13;  // milliseconds: more than any clock shows
  if (!facts.is_snapshot || facts.reason != SnapshotReason::kEdit) {
    return options_.policy->Key(facts);
  }
  return static_cast<double>(facts.used_ms) - kBefore;
}

size_t StateIndex::LadderBytesMax() const {
  return static_cast<size_t>(static_cast<double>(options_.cache.budget_bytes) *
                             options_.ladder_share);
}

// For a rung: free memory within the ladders' share, or that of older rungs.
bool StateIndex::MakeRoomForRung(double key) {
  while ((rung_count_ + 1) * state_bytes_ > LadderBytesMax()) {
    if (!EvictOne(EvictReason::kSnapshot, key, false)) return false;
  }
  return MakeRoomForSnapshot(key, false);
}

// The entry with the smallest key, if that is below the bound, of those who have more than their
// share (of all, if they have nothing that can go). Keys may have risen since they were
// computed (a neighbour went, so more would be replayed): then the entry moves and we look again.
EntryId StateIndex::NextVictim(double below_key) {
  Tenants::Mask owners = OverShare();
  if (!order_.Min(owners).valid()) owners = Tenants::kAll;
  while (true) {
    const EntryId id = order_.Min(owners);
    if (!id.valid() || order_.key(id) >= below_key) return EntryId();
    const double key = KeyOf(FactsOf(id));
    if (key <= order_.key(id)) return id;
    order_.Push(id, key);
  }
}

bool StateIndex::EvictOne(EvictReason why, double below_key, bool even_pinned) {
  while (true) {
    EntryId id = NextVictim(below_key);
    if (!id.valid()) {
      if (!even_pinned) return false;
      if (kind_->FreeCopies()) return true;
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

void StateIndex::CountEvicted(const Entry& entry, EvictReason why) {
  stats_.evicted_age_ms.Add(static_cast<uint64_t>(now_ms_ - entry.used_ms));
  if (entry.snapshot.valid()) ++stats_.snapshots_evicted[static_cast<size_t>(why)];
}

// One block off the end of a leaf (of a window: first what lies before the window of its end).
// False if that would free nothing because a running request uses it.
bool StateIndex::EvictTailBlock(EntryId id, EvictReason why) {
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
void StateIndex::DropTail(EntryId id, EvictReason why) {
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

void StateIndex::DropSnapshot(EntryId id, EvictReason why) {
  CHECK(!order_[id].spilling);
  const Entry entry = order_[id];
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
void StateIndex::TrimUnreachable(NodeId node, int32_t position) {
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

// The node holds K/V, perhaps for the first time.
void StateIndex::AfterTailChanged(NodeId node, const LeaseRecord& record) {
  if (!kv_->holds(node)) return;
  tails_.Grow(size_t{node.value} + 1);
  if (!tails_[node.value].valid()) {
    Entry entry;
    entry.node = node;
    entry.used_ms = now_ms_;
    entry.turns = record.turns;
    entry.owner = record.owner;
    tails_[node.value] = order_.Add(entry);
    fresh_.Extend(node, now_ms_ + options_.cache.ttl_ms);
  }
  // A pinned tail that has grown beyond what pins may hold is one no more.
  if (order_[tails_[node.value]].pinned_until_ms > 0 && pins_.bytes() > PinnedBytesMax()) {
    Unpin(tails_[node.value]);
  }
  UpdateTail(node);
  UpdateTail(tree_.parent(node));
}

// Puts the node's tail into the eviction order or takes it out, as invariant (4) wants.
void StateIndex::UpdateTail(NodeId node) {
  const EntryId id = TailOf(node);
  if (!id.valid()) return;
  Entry& entry = order_.Edit(id);
  const bool leaf = tree_.live_children(node) == 0;
  if (leaf != entry.leaf) {
    entry.leaf = leaf;
    leaf ? ++leaf_count_ : --leaf_count_;
  }
  if (leaf && entry.pinned_until_ms == 0 && !entry.parked) {
    order_.Push(id, KeyOf(FactsOf(id)));
  } else {
    order_.Pull(id);
  }
}

// The same for a snapshot.
void StateIndex::Rekey(EntryId id) {
  if (order_[id].pinned_until_ms > 0 || order_[id].spilling || id == serving_) {
    order_.Pull(id);
  } else {
    order_.Push(id, KeyOf(FactsOf(id)));
  }
}

// What it costs to have the state of [from, upto) again, which ends in the node: to compute it, or
// to load it where a lower tier has it.
double StateIndex::LossOf(NodeId node, int32_t from, int32_t upto) const {
  const double compute = cost_.Recompute(from, upto);
  if (!records_.Covers(node, upto)) return compute;
  const size_t blocks = size_t(upto - from) / options_.block_tokens + 1;
  return std::min(compute, rates_.CostOfLoad(0, blocks * block_bytes_ + state_bytes_));
}

EntryFacts StateIndex::FactsOf(EntryId id) const {
  const Entry& entry = order_[id];
  const int32_t tokens = options_.block_tokens;
  EntryFacts facts;
  facts.used_ms = entry.used_ms;
  facts.turns = entry.turns;
  facts.end = EndKindOf(entry);
  facts.superseded = entry.superseded;
  facts.reason = entry.reason;
  facts.is_snapshot = entry.snapshot.valid();
  const int32_t begin = tree_.begin(entry.node);
  if (!facts.is_snapshot) {
    const int32_t end = kv_->end(entry.node);
    const int32_t from = std::max(begin, (end - 1) / tokens * tokens);
    facts.cost = LossOf(entry.node, from, end) / cost_.Recompute(from, end);
    facts.bytes = 1;
    facts.position = end;
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

EndKind StateIndex::EndKindOf(SnapshotReason reason) {
  if (reason == SnapshotReason::kPromptEnd) return EndKind::kPromptEnd;
  return reason == SnapshotReason::kReplyEnd ? EndKind::kReplyEnd : EndKind::kNone;
}

EndKind StateIndex::EndKindOf(const Entry& entry) const {
  if (entry.snapshot.valid()) return EndKindOf(entry.reason);
  return tree_.live_children(entry.node) == 0 ? EndKind::kTail : EndKind::kNone;
}

// The policy has learnt something: keys are computed anew, a few in each step.
void StateIndex::RekeySome(uint32_t count) {
  for (; count > 0 && rekey_left_ > 0; --count, --rekey_left_) {
    const EntryId id{rekey_next_ < order_.limit() ? rekey_next_ : 0};
    rekey_next_ = id.value + 1;
    if (order_.in_use(id) && order_.queued(id)) {
      order_.Push(id, KeyOf(FactsOf(id)));
    }
  }
}

void StateIndex::UnparkAll() {
  for (const EntryId id : parked_) {
    if (!order_.in_use(id) || !order_[id].parked) continue;
    order_.Edit(id).parked = false;
    UpdateTail(order_[id].node);
  }
  parked_.clear();
}

// Pins may hold half of the budget; beyond that they are wishes.
size_t StateIndex::PinnedBytesMax() const { return options_.cache.budget_bytes / 2; }

size_t StateIndex::KvBytesUpTo(NodeId node, int32_t upto) const {
  return has_kv() ? kv_->CountBlocks(node, upto) * block_bytes_ : 0;
}

void StateIndex::PinEntry(EntryId id, int64_t pin_ms) {
  Unpin(id);
  if (pin_ms <= 0) return;
  Entry& entry = order_.Edit(id);
  entry.pinned_until_ms = now_ms_ + pin_ms;
  pins_.Add(id, entry.node, entry.pinned_until_ms);
  if (pins_.bytes() > PinnedBytesMax()) return Unpin(id);
  fresh_.Extend(entry.node, entry.pinned_until_ms);
  order_.Pull(id);
}

void StateIndex::Unpin(EntryId id) {
  Entry& entry = order_.Edit(id);
  if (entry.pinned_until_ms == 0) return;
  const int64_t until_ms = std::exchange(entry.pinned_until_ms, 0);
  pins_.Remove(id, entry.node, until_ms);
  if (entry.snapshot.valid()) {
    Rekey(id);
  } else {
    UpdateTail(entry.node);
  }
}

void StateIndex::ExpirePins() {
  for (auto pin = pins_.First(); pin && pin->first <= now_ms_; pin = pins_.First()) {
    Unpin(pin->second);
  }
}

bool StateIndex::Expired(const Entry& entry) const {
  const int64_t ttl_ms = options_.cache.ttl_ms;
  return ttl_ms > 0 && entry.used_ms + ttl_ms <= now_ms_ && entry.pinned_until_ms == 0;
}

// Drops up to `count` entries that nobody has used for the ttl; true if there are more.
bool StateIndex::ExpireSome(int count) {
  if (options_.cache.ttl_ms <= 0) return false;
  for (auto* old = records_.Oldest(); old && old->used_ms < RecordsSinceMs();
       old = records_.Oldest()) {
    if (count-- == 0) return true;
    ForgetRecord(old->head.id);
  }
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

void StateIndex::EnforceEntryLimit() {
  const int64_t limit = options_.cache.entry_count_max;
  while (limit > 0 && kind_->count() > static_cast<size_t>(limit)) {
    const EntryId id = NextVictim(kAnyKey);
    if (!id.valid()) return;  // the rest is pinned or running
    if (order_[id].snapshot.valid()) {
      DropSnapshot(id, EvictReason::kEntryLimit);
    } else {
      DropTail(id, EvictReason::kEntryLimit);
    }
  }
}

}  // namespace reprise
