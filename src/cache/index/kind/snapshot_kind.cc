// SPDX-License-Identifier: Apache-2.0
// Entries that are snapshots: models with recurrent state.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/index/kind/entry_kind.h"

namespace reprise {

bool StateIndex::SnapshotKind::Expired(const RadixTree::Path& path, int32_t position) const {
  return index_.Expired(index_.order_[ServingAt(path, position)]);
}

EntryId StateIndex::SnapshotKind::ServingAt(const RadixTree::Path& path, int32_t position) const {
  return index_.recurrent_->Find(path, position)->entry;
}

bool StateIndex::SnapshotKind::WasEvicted(const RadixTree::Path& path, int32_t above,
                                          int32_t upto) const {
  return index_.recurrent_->FindEvicted(path, above, upto) > 0;
}

Status StateIndex::SnapshotKind::TakeState(LeaseRecord& record, EntryId entry) {
  index_.Spare(entry);  // not to be evicted by the room its own request needs
  const bool crowded = index_.live_states_ == index_.options_.cache.sequence_count;
  const bool room =
      !crowded && index_.MakeRoom({.states = 1}, 0, EvictReason::kRunning, !record.idle);
  index_.Spare({});
  if (!room) {
    index_.Settle();
    return crowded
               ? ResourceExhausted("as many sequences run as may; try again when a request ends")
               : index_.NoRoom(
                     "running requests leave no room for one more recurrent state; run fewer at "
                     "a time or raise the budget");
  }
  record.state = index_.AllocateState();
  ++index_.live_states_;
  if (!entry.valid()) {
    index_.actions_.push_back({.verb = Action::Verb::kClearState, .to = record.state.value});
    return OkStatus();
  }
  index_.actions_.push_back(
      {Action::Verb::kCopyState, index_.order_[entry].snapshot.value, record.state.value});
  if (index_.options_.fills_beside) index_.BeginReading(record, entry);
  if (!record.idle) ++index_.stats_.snapshots_restored;
  return OkStatus();
}

void StateIndex::SnapshotKind::NoteStart(LeaseRecord& record, const MatchResult& match) {
  record.planned.clear();
  if (record.write && record.prompt_tokens >= record.min_cache_tokens) Plan(record, match);
}

void StateIndex::SnapshotKind::Plan(LeaseRecord& record, const MatchResult& match) {
  const CacheOptions& cache = index_.options_.cache;
  SnapshotPlanInput input;
  input.prompt_tokens = record.prompt_tokens;
  input.matched = match.usable;
  // The second sighting of a branch: the tokens are known, the state was never kept (or is gone).
  if (match.known < record.prompt_tokens) input.branch = match.known;
  input.boundaries = record.boundaries;
  input.grid = cache.snapshot_grid;
  input.gap = cache.snapshot_gap;
  input.ladder = cache.ladder_tokens;
  // A rung is a copy, which must be small beside the prefill that passes it: at most 2 %, where a
  // byte is copied in the time of so many multiply-adds.
  constexpr double kMacsPerByte = 8, kShare = 0.02;
  const size_t state_bytes = index_.state_bytes_;
  const double tokens =
      static_cast<double>(state_bytes) * kMacsPerByte / (kShare * index_.cost_.Recompute(0, 1));
  const bool climbs =
      !record.idle && tokens < record.prompt_tokens && index_.LadderBytesMax() >= state_bytes;
  input.rung_gap = climbs ? std::max(64, static_cast<int32_t>(tokens)) : 0;
  // One prompt must not fill the cache with its own snapshots.
  input.count_max = static_cast<int32_t>(
      std::clamp<size_t>(cache.budget_bytes / 4 / std::max<size_t>(state_bytes, 1), 2, 64));
  record.planned = PlanSnapshots(input);
}

// At a snapshot that the flight has planned, and if none is near, one more is asked for where the
// two prompts part.
int32_t StateIndex::SnapshotKind::Promised(LeaseRecord& flight, int32_t common,
                                           int32_t above) const {
  const CacheOptions& cache = index_.options_.cache;
  const int32_t at = common / cache.snapshot_grid * cache.snapshot_grid;
  auto& planned = flight.planned;
  auto next =
      std::upper_bound(planned.begin(), planned.end(), at,
                       [](int32_t p, const PlannedSnapshot& one) { return p < one.position; });
  int32_t last = std::max(above, flight.snapshot_at);
  for (auto one = planned.begin(); one != next; ++one) {
    if (one->reason != SnapshotReason::kEdit) last = one->position;  // rungs may be gone by then
  }
  constexpr size_t kPlannedMax = 64;
  const int32_t gap = std::min(cache.snapshot_gap, SnapshotPlanInput().shared_gap);
  if (at - last >= gap && at > flight.computed.logical && planned.size() < kPlannedMax) {
    const bool rung = next != planned.begin() && (next - 1)->position == at;
    rung ? void((next - 1)->reason = SnapshotReason::kBranch)
         : void(planned.insert(next, {at, SnapshotReason::kBranch}));
    return at;
  }
  return next == planned.begin() ? 0 : (next - 1)->position;
}

bool StateIndex::SnapshotKind::StillPromises(const LeaseRecord& flight, int32_t position) const {
  return flight.computed.logical < position;
}

// Snapshots that the step has passed.
bool StateIndex::SnapshotKind::PublishComputed(LeaseRecord& record, int32_t /*before*/) {
  if (record.planned.empty()) return false;
  index_.PublishPending(record);
  const int32_t computed = record.computed.logical;
  while (!record.planned.empty() && record.planned[0].position <= computed) {
    const PlannedSnapshot one = record.planned[0];
    record.planned.erase(record.planned.begin());
    if (one.position == computed && !index_.options_.fills_beside) {
      index_.TakeSnapshot(record, one, StateId());
    }
  }
  return true;
}

bool StateIndex::SnapshotKind::FinishTakesSnapshot(const LeaseRecord& r) const {
  const CacheOptions& cache = index_.options_.cache;
  return r.computed.logical > r.published &&
         r.computed.logical - r.snapshot_at >= cache.snapshot_gap &&
         r.computed.logical % cache.snapshot_grid == 0;
}

// The live state becomes the snapshot.
void StateIndex::SnapshotKind::Finish(LeaseRecord& record) {
  if (!FinishTakesSnapshot(record)) return;
  --index_.live_states_;
  index_.TakeSnapshot(record, {record.computed.logical, SnapshotReason::kReplyEnd},
                      std::exchange(record.state, StateId()));
}

void StateIndex::SnapshotKind::PublishLoad(LeaseRecord& record) { index_.PublishPending(record); }

bool StateIndex::SnapshotKind::leaves_gaps() const { return index_.has_kv() && index_.kv_->gaps(); }

bool StateIndex::SnapshotKind::TakeStateToLoad(LeaseRecord& record, int32_t position,
                                               SnapshotReason reason, Move* move) {
  if (index_.states_.full() || !index_.MakeRoom({.states = 1}, 0, EvictReason::kRunning, false)) {
    return false;
  }
  move->state = index_.AllocateSnapshot(reason);
  record.pending.push_back({position, move->state});
  record.pending_reasons.push_back(reason);
  return true;
}

void StateIndex::SnapshotKind::NoteUse(EntryId id) {
  EvictionOrder& order = index_.order_;
  const Entry& entry = order[id];
  const bool changed = index_.options_.policy->NoteReuse(
      {index_.EndKindOf(entry), entry.turns, entry.bulk_tokens, index_.now_ms_},
      index_.now_ms_ - entry.used_ms);
  order.Touch(id, index_.now_ms_);
  ++order.Edit(id).turns;
  index_.Rekey(id);
  if (changed) index_.rekey_left_ = order.limit();
}

void StateIndex::SnapshotKind::DropAll(NodeId node) {
  while (const auto mark = index_.recurrent_->Deepest(node, index_.tree_.end(node))) {
    index_.EndReadingOf(mark->entry);
    index_.DropSnapshot(mark->entry, EvictReason::kReset);
  }
}

size_t StateIndex::SnapshotKind::count() const { return index_.order_.size(); }

// The pinned states, and K/V up to the deepest of them, or all if others lie below.
size_t StateIndex::SnapshotKind::HeldByPins(NodeId node, bool pinned_below) const {
  size_t states = 0;
  int32_t upto = pinned_below ? index_.tree_.end(node) : 0;
  for (const Recurrent::Mark& mark : index_.recurrent_->marks(node)) {
    if (!mark.entry.valid() || index_.order_[mark.entry].pinned_until_ms == 0) continue;
    upto = std::max(upto, mark.position);
    ++states;
  }
  return states * index_.state_bytes_ + index_.KvBytesUpTo(node, upto);
}

bool StateIndex::SnapshotKind::GoesDown(const Entry& entry) const {
  return entry.reason != SnapshotReason::kEdit && !entry.superseded && !entry.low;
}

int64_t StateIndex::SnapshotKind::UsedMs(NodeId node) const {
  int64_t used_ms = -1;
  for (const Recurrent::Mark& mark : index_.recurrent_->marks(node)) {
    if (mark.entry.valid()) used_ms = std::max(used_ms, index_.order_[mark.entry].used_ms);
  }
  return used_ms;
}

std::vector<int32_t> StateIndex::SnapshotKind::SnapshotsAt(NodeId node) const {
  std::vector<int32_t> positions;
  for (const Recurrent::Mark& mark : index_.recurrent_->marks(node)) {
    if (mark.entry.valid()) positions.push_back(mark.position);
  }
  return positions;
}

void StateIndex::SnapshotKind::OnSplit(NodeId upper, NodeId lower) {
  index_.recurrent_->OnSplit(upper, lower);
}

// Invariant (1) of Keeper.
Status StateIndex::SnapshotKind::CheckNode(NodeId node) const {
  const Kv* kv = index_.kv_.get();
  const Recurrent& recurrent = *index_.recurrent_;
  if (kv != nullptr && kv->holds(node) && index_.tree_.live_children(node) == 0) {
    const auto deepest = recurrent.Deepest(node, index_.tree_.end(node));
    if (!deepest || deepest->position < kv->end(node)) {
      return Internal(fmt::format("node #{}: K/V behind the last snapshot", node.value));
    }
  }
  for (const Recurrent::Mark& mark : recurrent.marks(node)) {
    if (!mark.entry.valid()) continue;
    const Entry& entry = index_.order_[mark.entry];
    if (!index_.order_.in_use(mark.entry) || entry.node != node ||
        entry.position != mark.position ||
        index_.order_.queued(mark.entry) !=
            (entry.pinned_until_ms == 0 && !entry.spilling && entry.readers == 0)) {
      return Internal(fmt::format("node #{}: entry of snapshot @{}", node.value, mark.position));
    }
    if (kv != nullptr && !kv->gaps() && kv->end(node) < mark.position) {
      return Internal(fmt::format("node #{}: snapshot @{} has no K/V", node.value, mark.position));
    }
  }
  return OkStatus();
}

}  // namespace reprise
