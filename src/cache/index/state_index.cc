// SPDX-License-Identifier: Apache-2.0
#include "cache/index/state_index.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"
#include "cache/index/moves/loads.h"
#include "cache/index/moves/spills.h"

namespace reprise {
namespace {

// Ghost tokens show what comes back after it was evicted: 0.4 % of the budget, within limits.
size_t GhostTokensMax(size_t budget_bytes) {
  return std::clamp<size_t>(budget_bytes / 250 / sizeof(TokenId), 1 << 12, 1 << 24);
}

}  // namespace
StateIndex::StateIndex(Options options)
    : Keeper(std::move(options), this),
      flights_(&tree_),
      spills_(std::make_unique<Spills>(this)),
      loads_(std::make_unique<Loads>(this)),
      ghost_tokens_max_(GhostTokensMax(options_.cache.budget_bytes)) {
  if (recurrent_) {
    recurrent_->set_owner(this);
    kind_ = std::make_unique<SnapshotKind>(this);
  } else {
    kind_ = std::make_unique<TailKind>(this);
  }
}

StateIndex::~StateIndex() {
  CancelMoves();
  CHECK(flights_.size() == 0);
}

void StateIndex::SetTime(int64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  ExpirePins();
  constexpr int kExpirePerStep = 8;
  // All keys are new after 512 steps, up to 65,536 of them.
  constexpr uint32_t kRekeyMin = 20, kRekeyMax = 128;
  RekeySome(std::clamp((order_.limit() + 511) / 512, kRekeyMin, kRekeyMax));
  if (ExpireSome(kExpirePerStep)) Settle();
  spills_->BeginWanted();
  // What memory has no room for would be gone before there is idle time.
  const size_t budget = options_.cache.budget_bytes;
  if (tier_ != nullptr && bytes_used() > budget - budget / 8) spills_->BeginIdle();
}

NodeId StateIndex::RootOf(const NamespaceKey& key) {
  const auto [it, added] = namespaces_.try_emplace({key.salt, key.digest});
  if (added) {
    it->second = tree_.AddRoot();
    namespace_of_[it->second] = it;
  }
  return it->second;
}

void StateIndex::ForgetIfEmpty(NodeId root) {
  const auto it = namespace_of_.find(root);
  if (it == namespace_of_.end() || tree_.first_child(root).valid() || tree_.refs(root) > 0) return;
  namespaces_.erase(it->second);
  namespace_of_.erase(it);
  tree_.RemoveRoot(root);
}

void StateIndex::Announce() {
  Announcer::State state;
  state.tree = &tree_;
  if (has_kv() && !kv_->gaps()) state.full_kv = kv_.get();
  state.serve = [this](const RadixTree::Path& path, int32_t limit) { return Serve(path, limit); };
  state.block_tokens = options_.block_tokens;
  // What one tenant has is not for others to know: only what all share is told.
  state.shared = [this](NodeId root) {
    const auto it = namespace_of_.find(root);
    return it != namespace_of_.end() && it->second->first.first.empty();
  };
  state.digest = [this](NodeId root) -> std::string_view {
    return namespace_of_.at(root)->first.second;
  };
  announcer_ = std::make_unique<Announcer>(std::move(state));
}

std::vector<BlockEvent> StateIndex::TakeBlockEvents() {
  if (!announcer_) return {};
  std::vector<BlockEvent> events = announcer_->Take();
  if (events.empty()) return events;
  Settle();  // what was told is remembered: that may cost something, which is told, too
  for (BlockEvent& event : announcer_->Take()) events.push_back(std::move(event));
  return events;
}

void StateIndex::AnnounceAgain() { announcer_->Restart(); }

void StateIndex::OnSplit(NodeId upper, NodeId lower) {
  if (has_kv()) kv_->OnSplit(upper, lower);
  pins_.OnSplit(upper, lower);
  kind_->OnSplit(upper, lower);
  records_.OnSplit(upper, lower);
  pins_.Update(upper);
  pins_.Update(lower);
  fresh_.OnSplit(upper, lower);
  if (upper.value < subjects_.size()) subjects_[upper.value] = {};
  if (lower.value < subjects_.size() &&
      tree_.end(lower) - tree_.end(upper) <= options_.block_tokens) {
    NameSubject(upper, subjects_[lower.value]);
  }
  if (announcer_) announcer_->OnSplit(upper, lower);
}

void StateIndex::OnRemove(NodeId node) {
  for (Component* component : components_) component->OnRemove(node);
  kind_->OnRemove(node);
  fresh_.OnRemove(node);
  if (node.value < subjects_.size()) subjects_[node.value] = {};
  if (announcer_) announcer_->OnRemove(node);
  const NodeId above = tree_.parent(node);
  if (above.valid() && tree_.IsRoot(above)) maybe_empty_.push_back(above);
}

void StateIndex::OnEntryMoved(EntryId id, NodeId node) {
  Entry& entry = order_.Edit(id);
  if (entry.pinned_until_ms > 0) pins_.Move(entry.node, node);
  entry.node = node;
}

// Whoever's operation it is claims the room that it needs.
LeaseRecord& StateIndex::RecordOf(const Lease& lease) {
  auto& record = static_cast<LeaseRecord&>(*lease.at_);
  CHECK(lease.index_ == this && record.id == lease.id_);
  claim_.owner = record.owner;
  return record;
}

const LeaseRecord& StateIndex::record(const Lease& lease) const {
  const auto& record = static_cast<const LeaseRecord&>(*lease.at_);
  CHECK(lease.index_ == this && record.id == lease.id_);
  return record;
}

Lease StateIndex::Acquire(const CacheRequest& request) {
  CHECK(request.key != nullptr && !request.tokens.empty());
  CHECK(request.tokens.size() < size_t{std::numeric_limits<int32_t>::max()});
  const uint32_t seat = flights_.Add();
  LeaseRecord& record = flights_[seat];
  record.root = RootOf(*request.key);
  record.space = request.key->number();
  tree_.Ref(record.root);
  record.owner = tenants_.Enter(request.tenant, request.tenant_weight,
                                [this](uint32_t owner) { return CachedBytesOf(owner) > 0; });
  if (request.storage != nullptr) {
    CHECK(request.storage->size() == request.tokens.size());
    record.tokens = std::move(*request.storage);  // spans of it stay valid
  } else {
    record.tokens.assign(request.tokens.begin(), request.tokens.end());
  }
  record.prompt_tokens = static_cast<int32_t>(record.tokens.size());
  record.last = record.tokens.back();
  record.boundaries.assign(request.boundaries.begin(), request.boundaries.end());
  record.pin_ms = request.pin_ms;
  record.min_cache_tokens = request.min_cache_tokens;
  record.replay_tokens = std::max(1, request.replay_tokens);
  record.kept_tokens = request.kept_tokens;
  record.read = request.read && options_.cache.enabled;
  record.write = request.write && options_.cache.enabled;
  record.idle = request.idle;
  record.low = request.low;
  if (!request.session.empty()) {
    record.session = Sessions::NameOf(record.owner, request.key->number(), request.session);
  }
  record.bytes = sizeof(LeaseRecord) + record.tokens.capacity() * sizeof(TokenId) +
                 record.boundaries.capacity() * sizeof(Boundary);
  if (request.look_up) loads_->SeekBelow(seat);
  if (request.look_up) Explain(record, Match(record), &record.report);
  Settle();
  return Lease(this, &record, seat, record.id);
}

Status StateIndex::Reserve(const Lease& lease, int32_t token_count) {
  LeaseRecord& record = RecordOf(lease);
  CHECK(record.started && token_count >= 0);
  EndReading(record);
  FreePending(record);
  FreeDrafts(record);  // of a step that has failed
  const int32_t free = record.rows_free(options_.block_tokens);
  record.ahead = record.ahead && free - token_count >= options_.block_tokens;
  const BlockNeed need = NeedOf(record, token_count);
  if (record.planned.empty() && need.count() == 0) {
    TakeAhead(record, token_count);
    return OkStatus();
  }
  REPRISE_TRY(ReserveBlocks(record, need));
  ReservePending(record, record.computed.logical + token_count);
  Settle();
  return OkStatus();
}

Units StateIndex::UnitsBehind(const Lease& lease, int32_t now, int32_t next) const {
  const LeaseRecord& known = record(lease);
  const int32_t begin = known.computed.logical + now;
  Units units;
  units.blocks = NeedOf(known, now + next).more;
  for (const PlannedSnapshot& one : known.planned) {
    if (one.position > begin && one.position <= begin + next) ++units.states;
  }
  return units;
}

std::pair<std::vector<BlockId>, std::vector<StateId>> StateIndex::NextUnits(
    const Units& units) const {
  return {blocks_.Next(std::min(units.blocks, blocks_.capacity() - blocks_.used_count())),
          states_.Next(std::min(units.states, states_.capacity() - states_.used_count()))};
}

// Its state is filled from that snapshot, which must stay until then.
void StateIndex::BeginReading(LeaseRecord& record, EntryId entry) {
  record.reads = entry;
  ++order_.Edit(entry).readers;
  Rekey(entry);
}

void StateIndex::EndReading(LeaseRecord& record) {
  const EntryId entry = std::exchange(record.reads, EntryId());
  if (!entry.valid()) return;
  --order_.Edit(entry).readers;
  Rekey(entry);
}

// The snapshot goes, whoever reads it: the store waits for them.
void StateIndex::EndReadingOf(EntryId entry) {
  if (order_[entry].readers == 0) return;
  for (const LeaseRecord& one : flights_.records()) {
    if (one.id != 0 && one.reads == entry) EndReading(flights_[one.seat]);
  }
}

// The next block of a reply, before there are rows for it: sequences that come to the end of theirs
// in the same step have each taken one in another. Nothing pinned goes for it, and it goes back
// before anybody is refused (GiveUpAhead).
void StateIndex::TakeAhead(LeaseRecord& record, int32_t token_count) {
  if (!has_kv() || token_count != 1 || record.computed.logical < record.prompt_tokens) return;
  const int32_t free = record.rows_free(options_.block_tokens), left = free - token_count;
  // Of its last block so far the reply has all rows, or, at first, what the prompt has left.
  const int32_t rows = free + record.computed.physical - record.prompt_tokens;
  if (left != record.turn_of(std::clamp(rows, 1, options_.block_tokens))) return;
  if (record.computed.physical + token_count + left >= options_.cache.context_tokens) return;
  if (!MakeRoom({.blocks = 1}, 0, EvictReason::kRunning, false)) return;
  record.table.push_back(blocks_.Allocate(record.owner));
  record.ahead = true;
  Settle();
}

// A block that somebody has taken ahead. Returns false if nobody has.
bool StateIndex::GiveUpAhead() {
  for (const LeaseRecord& one : flights_.records()) {
    if (!one.ahead) continue;
    LeaseRecord& record = flights_[one.seat];
    blocks_.UnrefLease(record.table.back());
    record.table.pop_back();
    record.ahead = false;
    return true;
  }
  return false;
}

// What `token_count` more rows take beside the blocks that the record has.
BlockNeed StateIndex::NeedOf(const LeaseRecord& record, int32_t token_count) const {
  if (!has_kv() || token_count == 0) return {};
  const int32_t tokens = options_.block_tokens;
  const int32_t row = record.computed.physical;  // the next one
  const size_t wanted = (size_t(row) + token_count + tokens - 1) / tokens;
  BlockNeed need;
  need.more = static_cast<uint32_t>(wanted - std::min(wanted, record.table.size()));
  need.copy = row % tokens != 0 && row / tokens < record.shared_blocks;
  return need;
}

Status StateIndex::ReserveBlocks(LeaseRecord& record, const BlockNeed& need) {
  if (need.count() == 0) return OkStatus();
  if (!MakeRoom({.blocks = need.count()}, 0, EvictReason::kRunning, !record.idle)) {
    return NoRoom("running requests leave too little of the state memory (" +
                  std::to_string(options_.cache.budget_bytes >> 20) +
                  " MiB); run fewer at a time, shorten the prompt or raise the budget");
  }
  if (need.copy) {
    const int32_t open = record.computed.physical / options_.block_tokens;
    const BlockId mine = blocks_.Allocate(record.owner);
    const BlockId theirs = record.table[open];
    actions_.push_back({Action::Verb::kCopyBlock, theirs.value, mine.value});
    blocks_.UnrefLease(theirs);
    record.table[open] = mine;
    record.shared_blocks = open;
    ++stats_.blocks_copied;
  }
  for (uint32_t i = 0; i < need.more; ++i) {
    record.table.push_back(blocks_.Allocate(record.owner));
  }
  return OkStatus();
}

void StateIndex::Append(const Lease& lease, std::span<const TokenId> tokens) {
  LeaseRecord& record = RecordOf(lease);
  CHECK(record.started);
  if (tokens.empty()) return;
  const size_t before = record.tokens.capacity();
  for (const TokenId token : tokens) record.tokens.push_back(token);
  record.last = tokens.back();
  const size_t grown = (record.tokens.capacity() - before) * sizeof(TokenId);
  if (grown == 0) return;
  record.bytes += grown;
  lease_bytes_ += grown;
  Settle();
}

Status StateIndex::Commit(const Lease& lease, const CommitArgs& args) {
  LeaseRecord& record = RecordOf(lease);
  CHECK(record.started && args.token_count >= 0);
  const Extent done = record.computed + args.token_count;
  CHECK(size_t(done.logical) <= record.tokens.size());
  CHECK(!has_kv() || size_t(done.physical) <= record.table.size() * options_.block_tokens);
  if (!args.finite) {
    record.poisoned = true;
    record.planned.clear();
    ++stats_.snapshots_not_finite;
  }
  if (record.poisoned) {
    FreePending(record);
    FreeDrafts(record);
    return Internal("the state of this request is not finite after position " +
                    std::to_string(record.computed.logical) + "; nothing of it was stored");
  }
  constexpr int32_t kPrefillTokens = 16;  // fewer say little about what prompts take
  if (args.token_count >= kPrefillTokens) {
    rates_.NoteCompute(cost_.Recompute(record.computed.logical, done.logical), args.ns);
  }
  record.canonical = record.canonical && args.canonical;
  if (!record.canonical) record.planned.clear();
  const int32_t before = record.computed.logical;
  record.computed = done;
  if (!record.draft_states.empty()) PassDraft(record);
  const bool published = record.may_publish() && record.prompt_tokens >= record.min_cache_tokens &&
                         kind_->PublishComputed(record, before);
  if (before < record.prompt_tokens && !record.in_flight()) flights_.Arrive(lease.seat_);
  FreePending(record);
  DropBehindWindow(record);
  if (published) Settle();
  return OkStatus();
}

ReuseReport StateIndex::Finish(Lease lease, std::vector<TokenId>* storage) {
  LeaseRecord& record = RecordOf(lease);
  if (record.may_publish() && record.prompt_tokens >= record.min_cache_tokens) {
    kind_->Finish(record);
  }
  if (storage != nullptr) *storage = std::move(record.tokens);
  return record.report;
}

void StateIndex::Release(uint32_t seat, uint64_t id) {
  LeaseRecord& record = flights_[seat];
  CHECK(record.id == id);
  EndReading(record);
  blocks_.UnrefLease(record.table);
  FreePending(record);
  FreeDrafts(record);
  if (record.state.valid()) {
    --live_states_;
    FreeState(record.state);
  }
  const NodeId root = record.root;
  const RadixTree::Cursor cursor = record.cursor;
  const bool started = record.started;
  if (started) lease_bytes_ -= record.bytes;
  loads_->Withdraw(record);
  tenants_.Leave(record.owner);
  flights_.Remove(seat);
  if (started) tree_.Unref(cursor.node);
  tree_.Unref(root);
  ForgetIfEmpty(root);
  UnparkAll();
  Settle();
}

// Ends every operation that may have grown the metadata.
void StateIndex::Settle() {
  BoundRecords();
  tree_.PurgeGhosts(ghost_tokens_max_ + records_.token_count());
  while (bytes_used() > options_.cache.budget_bytes) {
    if (!PurgeSomeGhosts() &&
        !EvictOne(EvictReason::kMetadata, std::numeric_limits<double>::infinity(), PinsGo::kAll) &&
        !ForgetOldestRecord() && !CancelOneMove() && !GiveUpAhead()) {
      break;
    }
  }
  while (!maybe_empty_.empty()) {
    const NodeId root = maybe_empty_.back();
    maybe_empty_.pop_back();
    ForgetIfEmpty(root);
  }
}

void StateIndex::NoteRestore(const Lease& lease, int64_t restore_ns) {
  LeaseRecord& r = RecordOf(lease);
  r.report.restore_ns = restore_ns;
  if (r.state.valid() && r.computed.logical > 0 && !r.idle) {
    stats_.restore_us.Add(static_cast<uint64_t>(restore_ns / 1000));
  }
}

bool StateIndex::FreeCopies() { return kind_->FreeCopies(); }
size_t StateIndex::EntryCount() const { return kind_->count(); }
size_t StateIndex::HeldByPins(NodeId node, bool pinned_below) const {
  return kind_->HeldByPins(node, pinned_below);
}

size_t StateIndex::BytesBeside() const {
  constexpr size_t kMapNodeBytes = 96;  // a tree or hash node with its key, about
  return ends_.bytes() + subjects_.bytes() + guard_.bytes() + sessions_.bytes() + lease_bytes_ +
         2 * namespaces_.size() * kMapNodeBytes;
}

std::pair<size_t, size_t> StateIndex::BytesAndShareOf(std::string_view tenant) const {
  const uint32_t owner = tenants_.Find(tenant);
  if (owner == tenants_.size()) return {0, 0};
  return {CachedBytesOf(owner), ShareOf(owner)};
}

// Of what lower tiers have, then of entries.
bool StateIndex::ExpireSome(int count) {
  if (options_.cache.ttl_ms <= 0) return false;
  for (auto* old = records_.Oldest(); old && old->used_ms < RecordsSinceMs();
       old = records_.Oldest()) {
    if (count-- == 0) return true;
    ForgetRecord(old->head.id);
  }
  return ExpireEntries(count);
}

bool StateIndex::Maintain() {
  constexpr int kStepsMax = 64;  // per call: idle time is taken in small pieces
  const bool more = ExpireSome(kStepsMax);
  Settle();
  spills_->BeginWanted();
  spills_->BeginIdle();
  return more;
}

int32_t StateIndex::Pin(const NamespaceKey& key, std::span<const TokenId> tokens, int64_t pin_ms) {
  const auto it = namespaces_.find({key.salt, key.digest});
  if (it == namespaces_.end()) return 0;
  RadixTree::Path path;
  const int32_t position = Serve(path, tree_.Match(it->second, tokens, &path));
  const EntryId id = ServingAt(path, position);
  if (!id.valid()) return 0;
  PinEntry(id, pin_ms);
  const bool refused = pin_ms > 0 && order_[id].pinned_until_ms == 0;
  Settle();
  return refused ? 0 : position;
}

void StateIndex::Reset(const NamespaceKey* key) {
  std::vector<NodeId> roots;
  for (const auto& [name, root] : namespaces_) {
    if (key == nullptr || (name.first == key->salt && name.second == key->digest)) {
      roots.push_back(root);
    }
  }
  for (const NodeId root : roots) tree_.Ref(root);
  for (const NodeId root : roots) CancelMovesOf(root);
  for (const NodeId root : roots) {
    const std::vector<NodeId> nodes = tree_.NodesBelow(root);
    for (const NodeId node : nodes) {
      for (const TierRecordId record : records_.at(node)) ForgetRecord(record);
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) kind_->DropAll(*node);
    tree_.PurgeBelow(root);
  }
  for (const NodeId root : roots) tree_.Unref(root);
  Settle();
  for (const NodeId root : roots) ForgetIfEmpty(root);
}

}  // namespace reprise
