// SPDX-License-Identifier: Apache-2.0
// StateIndex: looking up, explaining, starting, and waiting for each other.
#include <algorithm>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"
#include "cache/index/moves/loads.h"

namespace reprise {

// Walks the prompt, from where the last walk has ended.
MatchResult StateIndex::Match(LeaseRecord& record) const {
  MatchResult match;
  if (!record.read) return match;
  const auto prompt = std::span(record.tokens).first(record.prompt_tokens);
  match.known = tree_.Match(record.root, prompt, &match.path, &record.place);
  match.kv = match.known;
  if (has_kv()) {
    match.kv = std::min(kv_->Serve(match.path, match.known), fresh_.UpTo(match.path, now_ms_));
  }
  match.servable = Serve(match.path, std::min(match.known, record.limit()));
  match.usable = match.servable >= record.min_cache_tokens ? match.servable : 0;
  return match;
}

bool StateIndex::LookUp(const Lease& lease, int32_t* tokens_left) {
  LeaseRecord& record = RecordOf(lease);
  if (!record.read) return true;
  const int32_t begin = tree_.Stands(record.place) ? record.place.at.position : 0;
  const int32_t end = begin + std::min(record.prompt_tokens - begin, *tokens_left);
  const auto tokens = std::span(record.tokens).first(end);
  const int32_t known = tree_.Match(record.root, tokens, nullptr, &record.place);
  *tokens_left -= known - begin;
  const bool complete = known < end || end == record.prompt_tokens;
  if (complete) loads_->SeekBelow(lease.seat_);
  return complete;
}

// The deepest position <= limit that every component can serve, with nothing that has expired.
int32_t StateIndex::Serve(const RadixTree::Path& path, int32_t limit) const {
  int32_t position = std::min(limit, fresh_.UpTo(path, now_ms_));
  for (int32_t before = -1; before != position;) {
    before = position;
    for (const Component* component : components_) position = component->Serve(path, position);
    if (position > 0 && kind_->Expired(path, position)) --position;
  }
  return position;
}

// The entry that serves `position`, a result of Serve; invalid at 0.
EntryId StateIndex::ServingAt(const RadixTree::Path& path, int32_t position) const {
  return position == 0 ? EntryId() : kind_->ServingAt(path, position);
}

bool StateIndex::StoredUnderOtherDigest(const LeaseRecord& record) const {
  constexpr int kDigestsMax = 8;
  const auto& [salt, digest] = namespace_of_.at(record.root)->first;
  const int32_t enough = std::min(record.limit(), options_.block_tokens);
  const auto head = std::span(record.tokens).first(enough);
  int tried = 0;
  for (auto it = namespaces_.lower_bound({salt, ""});
       it != namespaces_.end() && it->first.first == salt && tried < kDigestsMax; ++it, ++tried) {
    if (it->first.second != digest && enough > 0 &&
        tree_.Match(it->second, head, nullptr) == enough) {
      return true;
    }
  }
  return false;
}

// Names what kept the tokens behind `usable` from being reused. Where two things did, the one that
// cost more tokens.
void StateIndex::Explain(const LeaseRecord& record, const MatchResult& match,
                         ReuseReport* report) const {
  const int32_t limit = record.limit();
  const int32_t known = std::min(match.known, limit);
  report->prompt_tokens = record.prompt_tokens;
  report->known_tokens = match.known;
  report->kv_tokens = match.kv;
  report->state_tokens = match.kv;
  for (const Component* component : components_) {
    report->state_tokens = component->Serve(match.path, report->state_tokens);
  }
  report->used_tokens = report->stored_tokens = match.usable;
  // Which of what is in memory came from below, or was computed from that, is not kept apart.
  report->rounded = match.usable > 0 && tier_ != nullptr && tier_->rounds();
  report->diverged_at = -1;

  const bool at_end = match.path.empty() || (match.known == tree_.end(match.path.back().node) &&
                                             !tree_.first_child(match.path.back().node).valid());
  if (match.known > 0 && match.known < limit && !at_end) report->diverged_at = match.known;

  const auto reason = [&] {
    if (!record.read) return MissReason::kDisabled;
    if (match.usable == limit) return MissReason::kNone;
    if (match.known == 0) {
      return StoredUnderOtherDigest(record) ? MissReason::kOtherNamespace : MissReason::kCold;
    }
    if (match.usable < match.servable) return MissReason::kTooShort;
    const int32_t lost = known - match.usable;
    if (lost > 0 && (lost >= options_.cache.snapshot_gap || lost >= limit - known)) {
      const size_t blocks = size_t(known) / options_.block_tokens + 1;
      if (blocks * block_bytes_ + 2 * state_bytes_ > options_.cache.budget_bytes) {
        return MissReason::kTooLarge;
      }
      if (record.computes) return MissReason::kCheaper;
      if (match.kv < known) return MissReason::kEvicted;
      if (kind_->WasEvicted(match.path, match.usable, known)) return MissReason::kEvicted;
      return MissReason::kNoSnapshot;
    }
    return report->diverged_at >= 0 ? MissReason::kDiverged : MissReason::kNew;
  };
  report->reason = reason();
}

void StateIndex::CountLookup(const ReuseReport& report) {
  const auto reason = static_cast<size_t>(report.reason);
  const int32_t computed = report.prompt_tokens - report.used_tokens;
  ++stats_.lookups;
  if (report.reason == MissReason::kNone) {
    ++stats_.lookups_exact;
  } else if (report.used_tokens > 0) {
    ++stats_.lookups_partial;
  } else {
    ++stats_.lookups_miss;
  }
  stats_.tokens_prompt += report.prompt_tokens;
  stats_.tokens_reused += report.used_tokens;
  stats_.tokens_kv_matched += report.kv_tokens;
  stats_.tokens_state_matched += report.state_tokens;
  ++stats_.reasons[reason];
  stats_.tokens_missed[reason] += computed;
  stats_.reused_per_request.Add(report.used_tokens);
  stats_.computed_per_request.Add(computed);
}

// The part of the path that serves `position`: what lies behind it may go when room is made.
RadixTree::Path StateIndex::UpTo(const RadixTree::Path& path, int32_t position) const {
  RadixTree::Path upper;
  for (const RadixTree::PathStep& step : path) {
    if (tree_.begin(step.node) < position) upper.push_back(step);
  }
  return upper;
}

// The record shares the state along the path and goes on behind `position`, where it ends.
void StateIndex::Adopt(uint32_t seat, const RadixTree::Path& path, int32_t position) {
  LeaseRecord& record = flights_[seat];
  const NodeId node = path.empty() ? record.root : path.back().node;
  if (has_kv() && position > 0) {
    kv_->Collect(path, position, &record.table);
    blocks_.RefLease(record.table);
    record.shared_blocks = static_cast<int32_t>(record.table.size());
  }
  record.started = true;
  record.wait = {};
  flights_.TakeOff(seat);
  lease_bytes_ += record.bytes;
  record.computed = {position, position};
  record.published = record.snapshot_at = position;
  record.cursor = {node, position};
  tree_.Ref(node);
}

StartAnswer StateIndex::Start(const Lease& lease) {
  using Kind = StartAnswer::Kind;
  CHECK(!RecordOf(lease).started);
  loads_->SeekBelow(lease.seat_);
  if (loads_->AwaitsAnswer(RecordOf(lease))) return {Kind::kPending, {lease.id_, 0}, OkStatus()};
  if (records_.size() > 0) {
    const auto load = loads_->Await(lease.seat_, Match(RecordOf(lease)));
    if (load) return {Kind::kPending, *load, OkStatus()};
  }
  LeaseRecord& record = RecordOf(lease);
  const auto make_room = [&] {
    return MakeRoom({}, record.bytes, EvictReason::kRunning, !record.idle);
  };
  // What it goes on from makes room for its tokens only where nothing else is left.
  const MatchResult before = Match(record);
  Spare(ServingAt(before.path, before.usable));
  const bool has_room = make_room();
  Spare({});
  if (!has_room && !make_room()) {
    return {Kind::kRefused,
            {},
            ResourceExhausted("running requests leave no room for the tokens of one more")};
  }
  const MatchResult match = Match(record);
  const EntryId entry = ServingAt(match.path, match.usable);
  const RadixTree::Path path = UpTo(match.path, match.usable);
  Explain(record, match, &record.report);
  if (Status taken = kind_->TakeState(record, entry); !taken.ok()) {
    return {Kind::kRefused, {}, std::move(taken)};
  }
  loads_->Withdraw(record);
  Adopt(lease.seat_, path, match.usable);
  NoteSubject(record, match);
  if (!record.idle) Raise(record, path, entry);
  if (entry.valid() && !record.idle) {
    order_.SetCold(entry, record.cold || order_[entry].low);
    kind_->NoteUse(entry);
    if (record.pin_ms > 0) PinEntry(entry, record.pin_ms);
  }
  if (entry.valid() && EndKindOf(order_[entry]) != EndKind::kNone) {
    record.turns = order_[entry].turns;
  }
  if (record.loads > 0) {
    record.report.loaded_tokens =
        std::clamp(match.usable, record.loaded_from, record.loaded.position) - record.loaded_from;
  }
  if (!record.idle) CountLookup(record.report);
  kind_->NoteStart(record, match);
  Settle();
  return {};
}

// The request comes back to the subject at whose end its prompt leaves what is known, or begins a
// new one.
void StateIndex::NoteSubject(LeaseRecord& record, const MatchResult& match) {
  constexpr int32_t kRepeated = 16;
  const int32_t fresh = record.prompt_tokens - match.known;
  record.bulk_tokens = fresh + record.prompt_tokens / kRepeated;
  if (record.idle || !record.write) return;
  if (!match.path.empty()) {
    const NodeId node = match.path.back().node;
    const bool at_end = match.known + options_.block_tokens >= tree_.end(node);
    if (at_end && node.value < subjects_.size()) record.subject = subjects_[node.value];
  }
  const bool is_new = record.subject.birth == 0;
  const int32_t ladder = options_.cache.ladder_tokens;
  const size_t states = size_t(ladder > 0 ? fresh / ladder : 0) + (is_new ? 1 : 0);
  const size_t bytes =
      size_t(fresh) * block_bytes_ / size_t(options_.block_tokens) + states * state_bytes_;
  record.cold = guard_.Note(&record.subject, bytes, match.known);
  record.beside = sessions_.Note(record.session, is_new, now_ms_);
}

// Somebody has come back to what was stored: it is not beside anything any more, nor low, unless
// who comes is.
void StateIndex::Raise(const LeaseRecord& record, const RadixTree::Path& path, EntryId serving) {
  const auto raise = [&](EntryId id) {
    if (!id.valid()) return false;
    Entry& entry = order_.Edit(id);
    const bool raised = entry.beside || (entry.low && !record.low);
    entry.beside = false;
    entry.low = entry.low && record.low;
    return raised;
  };
  if (serving.valid() && order_[serving].snapshot.valid()) {
    if (raise(serving)) Rekey(serving);
    return;
  }
  for (const RadixTree::PathStep& step : path) {
    if (raise(TailOf(step.node))) UpdateTail(step.node);
  }
}

// The tokens of a subject end in this node. A copy: the subject may be one of those that move when
// there is room for more.
void StateIndex::NameSubject(NodeId node, ScanGuard::Subject subject) {
  if (subject.birth == 0) return;
  subjects_.Grow(size_t{node.value} + 1);
  subjects_[node.value] = subject;
}

// Whether what the record waits for is still to come.
bool StateIndex::StillPromises(const LeaseRecord& flight, const LeaseRecord& waiting) const {
  const int32_t position = waiting.wait.for_what.position;
  if (!flight.in_flight()) return false;
  return kind_->StillPromises(flight, position);
}

std::optional<Awaited> StateIndex::FindAwaited(const Lease& lease) {
  LeaseRecord& record = RecordOf(lease);
  CHECK(!record.started);
  if (!record.read) return std::nullopt;
  const uint32_t seat = lease.seat_;
  loads_->SeekBelow(seat);
  if (loads_->AwaitsAnswer(record)) return Awaited{record.id, 0};
  if (const LeaseRecord* flight = flights_.AwaitedBy(record)) {
    if (StillPromises(*flight, record)) return record.wait.for_what;
    flights_.Disembark(record, *flight);
  }
  MatchResult match;
  bool matched = false;  // once somebody is in flight
  LeaseRecord* best = nullptr;
  Awaited awaited;
  int32_t shared = 0;
  flights_.ForEachNew(record, [&](LeaseRecord& flight) {
    if (!matched) match = Match(record);
    matched = true;
    const int32_t usable = match.usable;
    // Most flights differ in the first token that is not stored.
    if (std::min(record.limit(), flight.prompt_tokens) - usable < kAwaitTokensMin) return;
    if (flight.tokens[usable] != record.tokens[usable]) return;
    const int32_t common = flights_.CommonWith(flight, record, match.path, match.known);
    if (common - usable < kAwaitTokensMin) return;
    const int32_t position = flight.load ? (common == flight.prompt_tokens ? common : 0)
                                         : kind_->Promised(flight, common, usable);
    if (position - usable < kAwaitTokensMin || position < record.min_cache_tokens) return;
    if (best != nullptr && position <= awaited.position) return;
    best = &flight;
    awaited = {flight.id, position};
    shared = common;
  });
  if (best == nullptr) {
    if (records_.size() == 0) return std::nullopt;
    return loads_->Await(seat, matched ? match : Match(record));
  }
  flights_.Await(record, *best, awaited, shared);
  if (!record.waited) ++stats_.waits;
  record.waited = true;
  return awaited;
}

}  // namespace reprise
