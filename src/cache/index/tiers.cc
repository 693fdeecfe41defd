// SPDX-License-Identifier: Apache-2.0
// StateIndex: what goes down to a lower tier, and what comes up again.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

constexpr size_t kSpillsMax = 2;       // at a time: they hold memory
constexpr size_t kLaggingMax = 4;      // that only a slower level still reads
constexpr size_t kLoadsMax = 8;        // at a time
constexpr int32_t kLoadsPerLease = 2;  // what was loaded may be evicted before its request starts
constexpr int32_t kLoadTokensMin = 32;
constexpr size_t kWishesMax = 256;

// The first block of the grid that is needed to go on from the position.
int32_t FirstBlock(const Kv* kv, int32_t position) {
  return kv != nullptr ? kv->FirstBlock(position) : 0;
}

}  // namespace

void StateIndex::SetTier(Tier* tier) {
  CHECK(tier_ == nullptr && namespaces_.empty());
  tier_ = tier;
}

NamespaceKey StateIndex::KeyOfRoot(NodeId root) const {
  const auto& [salt, digest] = namespace_of_.at(root)->first;
  return {digest, salt};
}

size_t StateIndex::moves_under_way() const { return transfers_.size() + questions_.size(); }

// Whether what a tier has of the prompt is not known yet, but could be of use.
bool StateIndex::AwaitsAnswer(LeaseRecord& record) const {
  return record.asked != 0 && record.limit() - Match(record).usable >= kLoadTokensMin;
}

// Asks the tier what it has of the prompt, once, and only if memory lacks enough of it.
void StateIndex::SeekBelow(uint32_t seat) {
  LeaseRecord& record = flights_[seat];
  if (tier_ == nullptr || record.sought || !record.read) return;
  if (record.limit() - Match(record).usable < kLoadTokensMin) return;
  record.sought = true;
  // Idle work does not wait for an answer.
  if (!record.idle) {
    const auto prompt = std::span(record.tokens).first(record.prompt_tokens);
    record.asked = tier_->Ask(KeyOfRoot(record.root), prompt);
  }
  if (record.asked != 0) {
    questions_[record.asked] = seat;
  } else {
    AddFound(record);
  }
  Settle();
}

// What a tier has along the prompt becomes known. Records come parents first, so each one is
// inserted behind the one before it: no token is compared twice.
void StateIndex::AddFound(const LeaseRecord& record) {
  const auto prompt = std::span(record.tokens).first(record.prompt_tokens);
  RadixTree::Cursor at{record.root, 0};
  tree_.Ref(at.node);
  const auto move_to = [&](RadixTree::Cursor to) {
    tree_.Ref(to.node);
    tree_.Unref(at.node);
    at = to;
  };
  tier_->Find(KeyOfRoot(record.root), prompt, [&](const FoundRecord& found) {
    if (found.position < 1 || found.position > record.prompt_tokens || found.first_block < 0 ||
        !MakeRoomForNodes()) {
      return TierRecordId();
    }
    const Records::Record* parent = records_.Find(found.parent);
    const int32_t above = parent != nullptr ? parent->head.position : 0;
    if (found.parent.valid() && parent == nullptr) return TierRecordId();
    const int32_t needed = FirstBlock(kv_.get(), found.position);
    if (found.first_block > std::max(above / options_.block_tokens, needed)) return TierRecordId();
    if (found.position < at.position) move_to({record.root, 0});  // those of another tier
    const int32_t known = at.position;
    move_to(tree_.Insert(at, prompt.subspan(static_cast<size_t>(known),
                                            static_cast<size_t>(found.position - known))));
    const Records::Record* there = records_.At(at.node, at.position);
    if (there != nullptr) return there->head.id;
    RecordHead head;
    head.parent = found.parent;
    head.first_block = found.first_block;
    head.position = found.position;
    head.reason = found.reason;
    return records_.Add(at.node, head, now_ms_, true);
  });
  tree_.Unref(at.node);
}

// Ends of conversations go down in idle time; what is pinned or meant to be shared at once, and
// everything where others may want it.
void StateIndex::WishSpill(const LeaseRecord& record, int32_t position, SnapshotReason reason) {
  if (tier_ == nullptr || record.load || record.low) return;
  const bool shared = reason == SnapshotReason::kSystem || reason == SnapshotReason::kBreakpoint;
  const bool end = reason == SnapshotReason::kPromptEnd || reason == SnapshotReason::kReplyEnd ||
                   reason == SnapshotReason::kBranch;
  const bool pinned = record.pin_ms > 0 && reason != SnapshotReason::kEdit;
  const bool now = shared || pinned || (end && tier_->shared());
  if (!now && !end) return;
  std::deque<SpillWish>& wishes = now ? spill_now_ : spill_idle_;
  wishes.push_back({tree_.PlaceOf({record.cursor.node, position}), reason});
  if (wishes.size() > kWishesMax) wishes.pop_front();
}

void StateIndex::SpillSome(std::deque<SpillWish>* wishes) {
  if (wishes->empty()) return;
  constexpr int kTriesMax = 8;  // per call
  const auto may = [this] {
    return static_cast<size_t>(
               std::count_if(transfers_.begin(), transfers_.end(), [](const auto& t) {
                 return t.second.kind == Move::Kind::kSpill && !t.second.lags;
               })) < kSpillsMax;
  };
  for (int i = 0; i < kTriesMax && !wishes->empty() && may(); ++i) {
    const SpillWish wish = wishes->front();
    wishes->pop_front();
    BeginSpill(wish);
  }
  Settle();
}

// What lies behind the record that the new one continues. With a window that may be more than is
// needed: a prompt may part from it anywhere, unless there is a state, which cannot be cut. Then,
// and where memory has a gap, it is what the window covers, and continues nothing.
bool StateIndex::TakeBlocksToSpill(const RadixTree::Path& path, bool with_state, Move* move) const {
  RecordHead& head = move->records[0];
  const int32_t needed = kv_->FirstBlock(head.position), tokens = options_.block_tokens;
  const int32_t held = kv_->HeldSince(path, head.position);
  if ((with_state && head.first_block < needed) || head.first_block * tokens < held) {
    head.parent = TierRecordId();
    head.first_block = needed;
  }
  if (head.first_block * tokens < held) return false;
  kv_->CollectFrom(path, head.first_block, head.position, &move->blocks);
  move->blocks.erase(move->blocks.begin(), move->blocks.begin() + head.first_block);
  move->first_block = head.first_block;
  return std::all_of(move->blocks.begin(), move->blocks.end(),
                     [](BlockId block) { return block.valid(); });
}

// Everything that somebody may go on from, the most valuable first. What conversations have passed
// stays out: it serves edits only.
void StateIndex::WishAll() {
  std::vector<std::pair<double, EntryId>> found;
  for (uint32_t i = 0; i < order_.limit(); ++i) {
    const EntryId id{i};
    if (!order_.in_use(id)) continue;
    const Entry& entry = order_[id];
    if (!kind_->GoesDown(entry)) continue;
    const double worth =
        entry.pinned_until_ms > 0 ? std::numeric_limits<double>::infinity() : order_.key(id);
    found.push_back({-worth, id});
  }
  std::sort(found.begin(), found.end());
  spill_idle_.clear();
  for (const auto& [worth, id] : found) {
    const Entry& entry = order_[id];
    const int32_t position = kind_->PositionOf(entry);
    spill_idle_.push_back({tree_.PlaceOf({entry.node, position}), entry.reason});
  }
}

bool StateIndex::IsGoingDown(TierRecordId id) const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [&](const auto& one) { return one.second.record == id; });
}

// Whether the conversation has gone on past the end that the record is of. What is in memory no
// more is not looked for there again, either: all others are there longer.
bool StateIndex::WasPassed(const Records::Record& record) const {
  const SnapshotReason reason = record.head.reason;
  const bool end = reason == SnapshotReason::kPromptEnd || reason == SnapshotReason::kReplyEnd;
  if (!end || !record.ready || tier_->shared()) return false;
  const auto mark = recurrent_->Deepest(record.node, record.head.position);
  const bool here = mark && mark->position == record.head.position;
  if (here && !order_[mark->entry].superseded) return false;
  return !here || order_[mark->entry].pinned_until_ms == 0;
}

// Of the records that the conversation has passed, one after another up from `last`, the first
// whose blocks, with those behind it, are no more than a snapshot. Null: none.
const Records::Record* StateIndex::FirstPassed(const Records::Record* last) const {
  constexpr int kPassedMax = 8;
  const Records::Record* first = nullptr;
  const Records::Record* one = last;
  for (int i = 0; i < kPassedMax && one != nullptr && WasPassed(*one); ++i) {
    const int32_t blocks = last->head.position / options_.block_tokens + 1 - one->head.first_block;
    if (size_t(blocks) * block_bytes_ > state_bytes_) break;
    first = one;
    one = records_.Find(one->head.parent);
  }
  return first;
}

void StateIndex::BeginSpill(const SpillWish& wish) {
  if (!tree_.Stands(wish.place)) return;
  const RadixTree::Cursor at = tree_.Resolve(wish.place.at);
  const RadixTree::Path path = tree_.PathTo(at);
  if (path.empty() || Serve(path, at.position) != at.position) return;  // gone meanwhile
  const EntryId serving = ServingAt(path, at.position);
  const bool with_state = serving.valid() && order_[serving].snapshot.valid();
  const EntryId entry = with_state ? serving : EntryId();
  // The conversation has moved on: so will its record.
  if (entry.valid() && (order_[entry].superseded || order_[entry].spilling)) return;
  const Records::Record* const there = records_.At(at.node, at.position);
  if (there != nullptr && (!there->ready || tier_->Continues(there->head.id))) return;
  if (there != nullptr && IsGoingDown(there->head.id)) return;
  const TierRecordId known = there != nullptr ? there->head.id : TierRecordId();  // not of all
  const Records::Record* parent = records_.Deepest(path, at.position - (there != nullptr ? 1 : 0));
  if (parent != nullptr && parent->ready && !tier_->Continues(parent->head.id) &&
      !IsGoingDown(parent->head.id)) {
    parent = nullptr;
  }
  Move move;
  move.kind = Move::Kind::kSpill;
  move.records = {{.position = at.position, .reason = wish.reason}};
  RecordHead& head = move.records[0];
  const Records::Record* passed = with_state ? FirstPassed(parent) : nullptr;
  move.passed = passed != nullptr;
  if (!has_kv()) parent = passed = nullptr;
  if (passed != nullptr) {  // with their blocks, too
    head.parent = passed->head.parent;
    head.first_block = passed->head.first_block;
  } else if (parent != nullptr) {
    head.parent = parent->head.id;
    head.first_block = parent->head.position / options_.block_tokens;
  }
  if (has_kv() && !TakeBlocksToSpill(path, with_state, &move)) return;
  const uint32_t seat = flights_.Add();
  LeaseRecord& record = flights_[seat];
  NodeId root = path.front().node;
  while (!tree_.IsRoot(root)) root = tree_.parent(root);
  record.root = root;
  record.owner = tenants_.Again(0);
  tree_.Ref(root);
  record.table = move.blocks;
  for (const BlockId block : record.table) blocks_.RefLease(block);
  if (entry.valid()) {
    move.state = order_[entry].snapshot;
    order_.Edit(entry).spilling = true;
    Rekey(entry);
  }
  head.id = known.valid() ? known : records_.Add(at.node, head, now_ms_, /*ready=*/false);
  move.id = ++move_count_;
  Transfer& transfer = transfers_[move.id];
  transfer = {move.kind, KeyOfRoot(root), {}, seat, head.id, entry, {}, known.valid(), false};
  for (const RadixTree::PathStep& step : path) {
    const auto run = tree_.run(step.node).first(size_t(step.end - tree_.begin(step.node)));
    transfer.tokens.insert(transfer.tokens.end(), run.begin(), run.end());
  }
  move.key = &transfer.key;
  move.tokens = transfer.tokens;
  moves_.push_back(std::move(move));
}

int64_t StateIndex::RecordsSinceMs() const {
  const int64_t ttl_ms = options_.cache.ttl_ms;
  return ttl_ms > 0 ? now_ms_ - ttl_ms + 1 : std::numeric_limits<int64_t>::min();
}

// Begins to load what lower tiers have behind the match, if that is worth it, and lets the record
// in `seat` wait for it.
std::optional<Awaited> StateIndex::AwaitLoad(uint32_t seat, const MatchResult& match) {
  LeaseRecord& waiting = flights_[seat];
  waiting.computes = false;
  if (!waiting.read || waiting.idle || waiting.loads >= kLoadsPerLease) return std::nullopt;
  const auto loads = std::count_if(transfers_.begin(), transfers_.end(), [](const auto& t) {
    return t.second.kind == Move::Kind::kFetch;
  });
  if (static_cast<size_t>(loads) >= kLoadsMax) return std::nullopt;
  const auto heads =
      records_.Reach(match.path, match.servable, waiting.limit(), kv_.get(), RecordsSinceMs());
  if (heads.empty()) return std::nullopt;
  const int32_t position = heads.back().position;
  if (position - match.usable < kLoadTokensMin || position < waiting.min_cache_tokens) {
    return std::nullopt;
  }
  const int32_t from =
      std::max(match.servable, FirstBlock(kv_.get(), position) * options_.block_tokens);
  const size_t blocks = size_t(position - from) / options_.block_tokens + 1;
  if (!rates_.LoadWins(tier_->level_of(heads.back().id), blocks * block_bytes_ + state_bytes_,
                       cost_.Recompute(match.usable, position))) {
    waiting.computes = true;
    return std::nullopt;
  }
  const uint32_t load = flights_.Add();  // may move the records
  if (!BeginLoad(seat, load, position)) {
    Release(load, flights_[load].id);
    return std::nullopt;
  }
  LeaseRecord& record = flights_[seat];
  const Awaited awaited{flights_[load].id, position};
  ++record.loads;
  record.loaded = awaited;
  record.loaded_from = flights_[load].computed.logical;
  flights_.Await(record, flights_[load], awaited, position);
  Settle();
  return awaited;
}

// A load is a sequence whose rows come from below: it shares what is there, has private blocks for
// the rest, and leaves a snapshot at its end. False: there is no room; `load` is to be released.
bool StateIndex::BeginLoad(uint32_t seat, uint32_t load, int32_t position) {
  LeaseRecord& record = flights_[load];
  const LeaseRecord& waiting = flights_[seat];
  record.load = true;
  record.owner = tenants_.Again(waiting.owner);
  record.root = waiting.root;
  tree_.Ref(record.root);
  record.tokens.assign(waiting.tokens.begin(), waiting.tokens.begin() + position);
  record.prompt_tokens = position;
  record.bytes = sizeof(LeaseRecord) + record.tokens.capacity() * sizeof(TokenId);
  const uint32_t blocks =
      has_kv() ? uint32_t(position / options_.block_tokens - kv_->FirstBlock(position)) + 2 : 0;
  const Units units{.blocks = blocks, .states = kind_->states_per_sequence()};
  if (!MakeRoom(units, record.bytes, EvictReason::kRunning, false)) return false;
  const MatchResult match = Match(record);  // what made room may have been a part of it
  const int32_t from = Serve(match.path, std::min(match.known, position - 1));
  const auto heads = records_.Reach(match.path, from, position, kv_.get(), RecordsSinceMs());
  if (heads.empty() || heads.back().position != position) return false;
  Adopt(load, UpTo(match.path, from), from);

  Move move;
  move.kind = Move::Kind::kFetch;
  move.id = ++move_count_;
  move.records = heads;
  if (!TakeBlocksToLoad(record, position, &move).ok()) return false;
  if (!kind_->TakeStateToLoad(record, position, heads.back().reason, &move)) return false;
  Transfer& transfer = transfers_[move.id];
  transfer = {move.kind, KeyOfRoot(record.root), record.tokens, load, {}, {}, {}, false, false};
  for (const RecordHead& head : heads) transfer.sources.push_back(head.id);
  move.key = &transfer.key;
  move.tokens = transfer.tokens;
  moves_.push_back(std::move(move));
  return true;
}

// Blocks behind what the load shares. What lies wholly before the window at its end is left out,
// and with it what is shared.
Status StateIndex::TakeBlocksToLoad(LeaseRecord& record, int32_t position, Move* move) {
  if (!has_kv()) return OkStatus();
  const int32_t from = record.computed.logical;
  move->first_block = std::max(from / options_.block_tokens, kv_->FirstBlock(position));
  BlockNeed need = NeedOf(record, position - from);
  if (move->first_block > from / options_.block_tokens) {
    blocks_.UnrefLease(record.table);
    record.table.assign(static_cast<size_t>(move->first_block), BlockId());
    record.shared_blocks = 0;
    need = NeedOf(record, position - from);
  }
  REPRISE_TRY(ReserveBlocks(record, need));
  move->blocks.assign(record.table.begin() + move->first_block, record.table.end());
  return OkStatus();
}

void StateIndex::Hear(const Tier::News& news) {
  for (const MoveDone& done : news.done) EndTransfer(done.id, done);
  BoundStored();
  for (const TierRecordId id : news.lost) {
    if (const Records::Record* record = records_.Find(id); record != nullptr && record->ready) {
      records_.Remove(id);
      ++stats_.records_lost;
    }
  }
  if (!news.lost.empty()) Settle();
  for (const uint64_t question : news.answered) {
    const auto asked = questions_.find(question);
    if (asked == questions_.end()) continue;  // its lease has ended
    LeaseRecord& record = flights_[asked->second];
    questions_.erase(asked);
    record.asked = 0;
    if (!record.started) AddFound(record);
  }
  if (!news.answered.empty()) Settle();
}

void StateIndex::EndTransfer(uint64_t id, const MoveDone& done) {
  const auto at = transfers_.find(id);
  CHECK(at != transfers_.end());
  if (done.more) return NoteStored(&at->second, done);
  const Transfer transfer = std::move(at->second);
  transfers_.erase(at);
  transfer.kind == Move::Kind::kSpill ? EndSpill(transfer, done) : EndLoad(transfer, done);
  Release(transfer.seat, flights_[transfer.seat].id);
}

// A level has it: it is found from now on.
void StateIndex::NoteStored(Transfer* transfer, const MoveDone& done) {
  transfer->stored = transfer->lags = true;
  records_.SetReady(transfer->record);
  UpdateTail(records_.Find(transfer->record)->node);  // it costs less to lose now
  ++stats_.spills;
  stats_.bytes_spilled += done.bytes;
}

// Of those that slower levels still read few are waited for: what more there is these do not get,
// so that the quicker ones are not held to their speed.
void StateIndex::BoundStored() {
  size_t lagging = 0;
  uint64_t last = 0;
  for (const auto& [id, one] : transfers_) {
    if (!one.lags) continue;
    ++lagging;
    last = id;
  }
  if (lagging <= kLaggingMax) return;
  ++stats_.moves_cancelled;
  CancelMove(last);
}

void StateIndex::EndSpill(const Transfer& transfer, const MoveDone& done) {
  if (!transfer.stored && done.ok) {
    records_.SetReady(transfer.record);
    UpdateTail(records_.Find(transfer.record)->node);  // it costs less to lose now
    ++stats_.spills;
    stats_.bytes_spilled += done.bytes;
  } else if (!transfer.stored) {
    records_.Remove(transfer.record);
    ++stats_.spills_failed;
  }
  if (transfer.entry.valid()) {
    order_.Edit(transfer.entry).spilling = false;
    Rekey(transfer.entry);
  }
}

// Everything that was read is published at once, or nothing of it.
void StateIndex::EndLoad(const Transfer& transfer, const MoveDone& done) {
  LeaseRecord& record = flights_[transfer.seat];
  if (!done.ok) {
    ++stats_.loads_failed;
    FreePending(record);
    for (const TierRecordId id : transfer.sources) ForgetRecord(id);
    return;
  }
  const int32_t from = record.computed.logical, upto = record.prompt_tokens;
  record.computed = {upto, upto};
  kind_->PublishLoad(record);
  for (const TierRecordId id : transfer.sources) {
    if (records_.Find(id) != nullptr) records_.Touch(id, now_ms_);
  }
  rates_.NoteLoad(done.level, done.bytes, done.ns);
  ++stats_.loads;
  stats_.bytes_loaded += done.bytes;
  stats_.tokens_loaded += static_cast<uint64_t>(upto - from);
  flights_.ForEachWaitingFor(record, [&](LeaseRecord& waiting) {
    waiting.report.load_ns += done.ns;
    waiting.report.load_bytes += done.bytes;
    waiting.report.load_tier = tier_->name_of(done.level);
  });
}

// Memory that a running request needs: what is on its way down goes on being in memory only, what
// is on its way up is computed after all.
bool StateIndex::CancelOneMove() {
  auto spill = std::find_if(transfers_.begin(), transfers_.end(),
                            [](const auto& t) { return t.second.stored; });
  if (spill == transfers_.end()) {
    spill = std::find_if(transfers_.begin(), transfers_.end(),
                         [](const auto& t) { return t.second.kind == Move::Kind::kSpill; });
  }
  const auto one = spill != transfers_.end() ? spill : transfers_.begin();
  if (one == transfers_.end()) return false;
  ++stats_.moves_cancelled;
  CancelMove(one->first);
  return true;
}

void StateIndex::CancelMove(uint64_t id) {
  if (std::erase_if(moves_, [&](const Move& move) { return move.id == id; }) == 0) {
    tier_->Cancel(id);
  }
  const auto at = transfers_.find(id);
  const Transfer transfer = std::move(at->second);
  transfers_.erase(at);
  if (transfer.kind == Move::Kind::kSpill) {
    if (!transfer.stored) records_.Remove(transfer.record);
    if (transfer.entry.valid()) {
      order_.Edit(transfer.entry).spilling = false;
      Rekey(transfer.entry);
    }
  }
  Release(transfer.seat, flights_[transfer.seat].id);
}

void StateIndex::CancelMoves() {
  while (!transfers_.empty()) CancelMove(transfers_.begin()->first);
}

void StateIndex::CancelMovesOf(NodeId root) {
  std::vector<uint64_t> ids;
  for (const auto& [id, transfer] : transfers_) {
    if (flights_[transfer.seat].root == root) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    if (transfers_.contains(id)) CancelMove(id);
  }
}

// Of one that is being written, the writing ends, too.
void StateIndex::ForgetRecord(TierRecordId id) {
  for (const auto& [move, transfer] : transfers_) {
    if (transfer.record != id) continue;
    CancelMove(move);
    break;
  }
  if (records_.Find(id) == nullptr) return;
  records_.Remove(id);
  tier_->Remove(id);
}

bool StateIndex::ForgetOldestRecord() {
  const Records::Record* oldest = records_.Oldest();
  if (oldest == nullptr) return false;
  ForgetRecord(oldest->head.id);
  return true;
}

// Knowing what others keep takes memory, too: half of the nodes, a sixteenth of the budget.
void StateIndex::BoundRecords() {
  const size_t tokens_max = options_.cache.budget_bytes / 16 / sizeof(TokenId);
  while (records_.size() > node_count_max_ / 2 || records_.token_count() > tokens_max) {
    if (!ForgetOldestRecord()) return;
  }
}

std::optional<Residency> StateIndex::ResidencyOf(const NamespaceKey& key,
                                                 std::span<const TokenId> tokens) const {
  const auto it = namespaces_.find({key.salt, key.digest});
  if (it == namespaces_.end()) return std::nullopt;
  RadixTree::Path path;
  const auto position = static_cast<int32_t>(tokens.size());
  if (tree_.Match(it->second, tokens, &path) < position || position == 0) return std::nullopt;
  const Records::Record* record = records_.Deepest(path, position);
  if (record != nullptr && record->head.position != position) record = nullptr;
  if (Serve(path, position) == position) {
    return record != nullptr && !record->ready ? Residency::kSpilling : Residency::kResident;
  }
  if (record == nullptr) return std::nullopt;
  const bool fetching = std::any_of(transfers_.begin(), transfers_.end(), [&](const auto& t) {
    const auto& sources = t.second.sources;
    return std::find(sources.begin(), sources.end(), record->head.id) != sources.end();
  });
  return fetching ? Residency::kFetching : Residency::kSpilled;
}

}  // namespace reprise
