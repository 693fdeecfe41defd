// SPDX-License-Identifier: Apache-2.0
#include "cache/index/moves/spills.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

constexpr size_t kSpillsMax = 2;   // at a time: they hold memory
constexpr size_t kLaggingMax = 4;  // that only a slower level still reads
constexpr size_t kWishesMax = 256;

}  // namespace

void StateIndex::Spills::Wish(const LeaseRecord& record, int32_t position, SnapshotReason reason) {
  if (index_.tier_ == nullptr || record.load || record.low) return;
  const bool shared = reason == SnapshotReason::kSystem || reason == SnapshotReason::kBreakpoint;
  const bool end = reason == SnapshotReason::kPromptEnd || reason == SnapshotReason::kReplyEnd ||
                   reason == SnapshotReason::kBranch;
  const bool pinned = record.pin_ms > 0 && reason != SnapshotReason::kEdit;
  const bool now = shared || pinned || (end && index_.tier_->shared());
  if (!now && !end) return;
  std::deque<Wanted>& wishes = now ? now_ : idle_;
  wishes.push_back({index_.tree_.PlaceOf({record.cursor.node, position}), reason});
  if (wishes.size() > kWishesMax) wishes.pop_front();
}

// What conversations have passed stays out: it serves edits only.
void StateIndex::Spills::WishAll() {
  std::vector<std::pair<double, EntryId>> found;
  for (uint32_t i = 0; i < index_.order_.limit(); ++i) {
    const EntryId id{i};
    if (!index_.order_.in_use(id)) continue;
    const Entry& entry = index_.order_[id];
    if (!index_.kind_->GoesDown(entry)) continue;
    const double worth =
        entry.pinned_until_ms > 0 ? std::numeric_limits<double>::infinity() : index_.order_.key(id);
    found.push_back({-worth, id});
  }
  std::sort(found.begin(), found.end());
  idle_.clear();
  for (const auto& [worth, id] : found) {
    const Entry& entry = index_.order_[id];
    const int32_t position = index_.kind_->PositionOf(entry);
    idle_.push_back({index_.tree_.PlaceOf({entry.node, position}), entry.reason});
  }
}

bool StateIndex::Spills::MayBegin() const {
  const auto count = std::count_if(under_way_.begin(), under_way_.end(),
                                   [](const auto& one) { return !one.second.lags; });
  return static_cast<size_t>(count) < kSpillsMax;
}

void StateIndex::Spills::BeginSome(std::deque<Wanted>* wishes) {
  if (wishes->empty()) return;
  constexpr int kTriesMax = 8;  // per call
  for (int i = 0; i < kTriesMax && !wishes->empty() && MayBegin(); ++i) {
    const Wanted wish = wishes->front();
    wishes->pop_front();
    Begin(wish);
  }
  index_.Settle();
}

// What lies behind the record that the new one continues. With a window that may be more than is
// needed: a prompt may part from it anywhere, unless there is a state, which cannot be cut. Then,
// and where memory has a gap, it is what the window covers, and continues nothing.
bool StateIndex::Spills::TakeBlocks(const RadixTree::Path& path, bool with_state,
                                    Move* move) const {
  RecordHead& head = move->records[0];
  const int32_t needed = index_.kv_->FirstBlock(head.position),
                tokens = index_.options_.block_tokens;
  const int32_t held = index_.kv_->HeldSince(path, head.position);
  if ((with_state && head.first_block < needed) || head.first_block * tokens < held) {
    head.parent = TierRecordId();
    head.first_block = needed;
  }
  if (head.first_block * tokens < held) return false;
  index_.kv_->CollectFrom(path, head.first_block, head.position, &move->blocks);
  move->blocks.erase(move->blocks.begin(), move->blocks.begin() + head.first_block);
  move->first_block = head.first_block;
  return std::all_of(move->blocks.begin(), move->blocks.end(),
                     [](BlockId block) { return block.valid(); });
}

bool StateIndex::Spills::Writes(TierRecordId record) const {
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [&](const auto& one) { return one.second.record == record; });
}

// Whether all levels have it, or get it now.
bool StateIndex::Spills::Continues(const Records::Record& record) const {
  return !record.ready || index_.tier_->Continues(record.head.id) || Writes(record.head.id);
}

// Whether the conversation has gone on past the end that the record is of. What is in memory no
// more is not looked for there again, either: all others are there longer.
bool StateIndex::Spills::WasPassed(const Records::Record& record) const {
  const SnapshotReason reason = record.head.reason;
  const bool end = reason == SnapshotReason::kPromptEnd || reason == SnapshotReason::kReplyEnd;
  if (!end || !record.ready || index_.tier_->shared()) return false;
  const auto mark = index_.recurrent_->Deepest(record.node, record.head.position);
  const bool here = mark && mark->position == record.head.position;
  if (here && !index_.order_[mark->entry].superseded) return false;
  return !here || index_.order_[mark->entry].pinned_until_ms == 0;
}

// Of the records that the conversation has passed, one after another up from `last`, the first
// whose blocks, with those behind it, are no more than a snapshot. Null: none.
const Records::Record* StateIndex::Spills::FirstPassed(const Records::Record* last) const {
  constexpr int kPassedMax = 8;
  const Records::Record* first = nullptr;
  const Records::Record* one = last;
  for (int i = 0; i < kPassedMax && one != nullptr && WasPassed(*one); ++i) {
    const int32_t blocks =
        last->head.position / index_.options_.block_tokens + 1 - one->head.first_block;
    if (size_t(blocks) * index_.block_bytes_ > index_.state_bytes_) break;
    first = one;
    one = index_.records_.Find(one->head.parent);
  }
  return first;
}

void StateIndex::Spills::Begin(const Wanted& wish) {
  if (!index_.tree_.Stands(wish.place)) return;
  const RadixTree::Cursor at = index_.tree_.Resolve(wish.place.at);
  const RadixTree::Path path = index_.tree_.PathTo(at);
  if (path.empty() || index_.Serve(path, at.position) != at.position) return;  // gone meanwhile
  const EntryId serving = index_.ServingAt(path, at.position);
  const bool with_state = serving.valid() && index_.order_[serving].snapshot.valid();
  const EntryId entry = with_state ? serving : EntryId();
  // The conversation has moved on: so will its record.
  if (entry.valid() && (index_.order_[entry].superseded || index_.order_[entry].spilling)) return;
  const Records::Record* const there = index_.records_.At(at.node, at.position);
  if (there != nullptr && Continues(*there)) return;
  const TierRecordId known = there != nullptr ? there->head.id : TierRecordId();  // not of all
  const Records::Record* parent =
      index_.records_.Deepest(path, at.position - (there != nullptr ? 1 : 0));
  if (parent != nullptr && !Continues(*parent)) parent = nullptr;
  Move move;
  move.kind = Move::Kind::kSpill;
  move.records = {{.position = at.position, .reason = wish.reason}};
  RecordHead& head = move.records[0];
  const Records::Record* passed = with_state ? FirstPassed(parent) : nullptr;
  move.passed = passed != nullptr;
  if (!index_.has_kv()) parent = passed = nullptr;
  if (passed != nullptr) {  // with their blocks, too
    head.parent = passed->head.parent;
    head.first_block = passed->head.first_block;
  } else if (parent != nullptr) {
    head.parent = parent->head.id;
    head.first_block = parent->head.position / index_.options_.block_tokens;
  }
  if (index_.has_kv() && !TakeBlocks(path, with_state, &move)) return;
  const uint32_t seat = index_.flights_.Add();
  LeaseRecord& record = index_.flights_[seat];
  NodeId root = path.front().node;
  while (!index_.tree_.IsRoot(root)) root = index_.tree_.parent(root);
  record.root = root;
  record.owner = index_.tenants_.Again(0);
  index_.tree_.Ref(root);
  record.table = move.blocks;
  for (const BlockId block : record.table) index_.blocks_.RefLease(block);
  if (entry.valid()) {
    move.state = index_.order_[entry].snapshot;
    index_.order_.Edit(entry).spilling = true;
    index_.Rekey(entry);
  }
  head.id =
      known.valid() ? known : index_.records_.Add(at.node, head, index_.now_ms_, /*ready=*/false);
  move.id = index_.NextMove();
  Spill& spill = under_way_[move.id];
  spill = {index_.KeyOfRoot(root), {}, seat, head.id, entry, known.valid(), false};
  for (const RadixTree::PathStep& step : path) {
    const auto run =
        index_.tree_.run(step.node).first(size_t(step.end - index_.tree_.begin(step.node)));
    spill.tokens.insert(spill.tokens.end(), run.begin(), run.end());
  }
  move.key = &spill.key;
  move.tokens = spill.tokens;
  index_.moves_.push_back(std::move(move));
}

void StateIndex::Spills::End(uint64_t move, const MoveDone& done) {
  const auto at = under_way_.find(move);
  CHECK(at != under_way_.end());
  if (done.more) return NoteStored(&at->second, done);
  const Spill spill = std::move(at->second);
  under_way_.erase(at);
  Records& records = index_.records_;
  if (!spill.stored && done.ok) {
    records.SetReady(spill.record);
    index_.UpdateTail(records.Find(spill.record)->node);  // it costs less to lose now
    ++index_.stats_.spills;
    index_.stats_.bytes_spilled += done.bytes;
  } else if (!spill.stored) {
    records.Remove(spill.record);
    ++index_.stats_.spills_failed;
  }
  Release(spill);
}

// A level has it: it is found from now on.
void StateIndex::Spills::NoteStored(Spill* spill, const MoveDone& done) {
  spill->stored = spill->lags = true;
  index_.records_.SetReady(spill->record);
  index_.UpdateTail(index_.records_.Find(spill->record)->node);  // it costs less to lose now
  ++index_.stats_.spills;
  index_.stats_.bytes_spilled += done.bytes;
}

// What was read may go.
void StateIndex::Spills::Release(const Spill& spill) {
  if (spill.entry.valid()) {
    index_.order_.Edit(spill.entry).spilling = false;
    index_.Rekey(spill.entry);
  }
  index_.Release(spill.seat, index_.flights_[spill.seat].id);
}

void StateIndex::Spills::BoundLagging() {
  size_t lagging = 0;
  uint64_t last = 0;
  for (const auto& [move, spill] : under_way_) {
    if (!spill.lags) continue;
    ++lagging;
    last = move;
  }
  if (lagging <= kLaggingMax) return;
  ++index_.stats_.moves_cancelled;
  Cancel(last);
}

void StateIndex::Spills::Cancel(uint64_t move) {
  index_.CallOff(move);
  const auto at = under_way_.find(move);
  const Spill spill = std::move(at->second);
  under_way_.erase(at);
  if (!spill.stored) index_.records_.Remove(spill.record);
  Release(spill);
}

bool StateIndex::Spills::CancelOne() {
  if (under_way_.empty()) return false;
  auto one = std::find_if(under_way_.begin(), under_way_.end(),
                          [](const auto& spill) { return spill.second.stored; });
  if (one == under_way_.end()) one = under_way_.begin();
  ++index_.stats_.moves_cancelled;
  Cancel(one->first);
  return true;
}

void StateIndex::Spills::CancelAll() {
  while (!under_way_.empty()) Cancel(under_way_.begin()->first);
}

void StateIndex::Spills::CancelOf(NodeId root) {
  std::vector<uint64_t> moves;
  for (const auto& [move, spill] : under_way_) {
    if (index_.flights_[spill.seat].root == root) moves.push_back(move);
  }
  for (const uint64_t move : moves) {
    if (Has(move)) Cancel(move);
  }
}

void StateIndex::Spills::CancelRecord(TierRecordId record) {
  const auto of = std::find_if(under_way_.begin(), under_way_.end(),
                               [&](const auto& one) { return one.second.record == record; });
  if (of != under_way_.end()) Cancel(of->first);
}

}  // namespace reprise
