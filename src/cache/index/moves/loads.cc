// SPDX-License-Identifier: Apache-2.0
#include "cache/index/moves/loads.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"

namespace reprise {
namespace {

constexpr size_t kLoadsMax = 8;        // at a time
constexpr int32_t kLoadsPerLease = 2;  // what was loaded may be evicted before its request starts
constexpr int32_t kLoadTokensMin = 32;
constexpr size_t kPieceBlocks = 16;              // of a path, 15 to 30 us
constexpr size_t kTurnBlocks = 256;              // until the thread turns to the next prompt
constexpr size_t kBlocksPerStep = kPieceBlocks;  // on the thread of those that run

// The first block of the grid that is needed to go on from the position.
int32_t FirstBlock(const Kv* kv, int32_t position) {
  return kv != nullptr ? kv->FirstBlock(position) : 0;
}

}  // namespace

bool StateIndex::Loads::AwaitsAnswer(LeaseRecord& record) const {
  return record.asked != 0 && record.limit() - index_.Match(record).usable >= kLoadTokensMin;
}

void StateIndex::Loads::SeekBelow(uint32_t seat) {
  LeaseRecord& record = index_.flights_[seat];
  if (index_.tier_ == nullptr || record.sought || !record.read) return;
  if (record.limit() - index_.Match(record).usable < kLoadTokensMin) return;
  record.sought = true;
  Question question{.seat = seat, .paths = BeginPaths(record)};
  // Idle work does not wait for an answer.
  if (!record.idle) {
    const auto prompt = std::span(record.tokens).first(record.prompt_tokens);
    question.of_tier = index_.tier_->Ask(index_.KeyOfRoot(record.root), prompt);
  }
  if (question.open()) {
    record.asked = ++asked_;
    questions_[record.asked] = std::move(question);
  } else {
    AddFound(record, question.paths->paths);
  }
  index_.Settle();
}

// They are computed here where nobody runs who would wait, or where they are few.
std::shared_ptr<StateIndex::Loads::Paths> StateIndex::Loads::BeginPaths(const LeaseRecord& record) {
  std::vector<PathId> roots;
  index_.tier_->AddRoots(index_.KeyOfRoot(record.root), &roots);
  const auto prompt = std::span(record.tokens).first(record.prompt_tokens);
  auto paths = std::make_shared<Paths>(PromptPaths(roots, prompt));
  const size_t blocks = paths->paths.blocks();
  if (index_.lease_bytes_ > 0 && !record.idle) {
    if (blocks > blocks_left_) {
      ComputeBeside(paths);
      return paths;
    }
    blocks_left_ -= blocks;
    path_blocks_ += blocks;
  }
  while (!paths->paths.Extend(kPieceBlocks)) continue;
  paths->chore.End();
  return paths;
}

// Prompts take turns: a short one does not wait for all of the long ones before it.
void StateIndex::Loads::ComputeBeside(std::shared_ptr<Paths> paths) {
  hasher_.Post([this, paths = std::move(paths)] {
    if (!paths->chore.Begin()) return;
    bool whole = false;
    for (size_t i = 0; i < kTurnBlocks && !whole && !paths->chore.off(); i += kPieceBlocks) {
      whole = paths->paths.Extend(kPieceBlocks);
    }
    if (!whole && paths->chore.Pause()) return ComputeBeside(paths);
    paths->chore.End();
  });
}

void StateIndex::Loads::Answer(uint64_t of_tier) {
  for (auto& [id, question] : questions_) {
    if (question.of_tier == of_tier) question.of_tier = 0;
  }
}

bool StateIndex::Loads::TakeAnswers() {
  blocks_left_ = kBlocksPerStep;
  return std::erase_if(questions_, [&](const auto& one) {
           const Question& question = one.second;
           if (question.open()) return false;
           LeaseRecord& record = index_.flights_[question.seat];
           record.asked = 0;
           AddFound(record, question.paths->paths);
           return true;
         }) > 0;
}

void StateIndex::Loads::Withdraw(LeaseRecord& record) {
  const auto question = questions_.find(std::exchange(record.asked, 0));
  if (question == questions_.end()) return;
  question->second.paths->chore.CallOff(hasher_);
  questions_.erase(question);
}

// What a tier has along the prompt becomes known. Records come parents first, so each one is
// inserted behind the one before it: no token is compared twice.
void StateIndex::Loads::AddFound(const LeaseRecord& record, const PromptPaths& paths) {
  const auto prompt = paths.tokens();
  RadixTree::Cursor at{record.root, 0};
  index_.tree_.Ref(at.node);
  const auto move_to = [&](RadixTree::Cursor to) {
    index_.tree_.Ref(to.node);
    index_.tree_.Unref(at.node);
    at = to;
  };
  index_.tier_->Find(index_.KeyOfRoot(record.root), paths, [&](const FoundRecord& found) {
    if (found.position < 1 || found.position > record.prompt_tokens || found.first_block < 0 ||
        !index_.MakeRoomForNodes()) {
      return TierRecordId();
    }
    const Records::Record* parent = index_.records_.Find(found.parent);
    const int32_t above = parent != nullptr ? parent->head.position : 0;
    if (found.parent.valid() && parent == nullptr) return TierRecordId();
    const int32_t needed = FirstBlock(index_.kv_.get(), found.position);
    if (found.first_block > std::max(above / index_.options_.block_tokens, needed))
      return TierRecordId();
    if (found.position < at.position) move_to({record.root, 0});  // those of another tier
    const int32_t known = at.position;
    move_to(index_.tree_.Insert(at, prompt.subspan(static_cast<size_t>(known),
                                                   static_cast<size_t>(found.position - known))));
    const Records::Record* there = index_.records_.At(at.node, at.position);
    if (there != nullptr) return there->head.id;
    RecordHead head;
    head.parent = found.parent;
    head.first_block = found.first_block;
    head.position = found.position;
    head.reason = found.reason;
    return index_.records_.Add(at.node, head, index_.now_ms_, true);
  });
  index_.tree_.Unref(at.node);
}

std::optional<Awaited> StateIndex::Loads::Await(uint32_t seat, const MatchResult& match) {
  LeaseRecord& waiting = index_.flights_[seat];
  waiting.computes = false;
  if (!waiting.read || waiting.idle || waiting.loads >= kLoadsPerLease) return std::nullopt;
  if (under_way_.size() >= kLoadsMax) return std::nullopt;
  const auto heads = index_.records_.Reach(match.path, match.servable, waiting.limit(),
                                           index_.kv_.get(), index_.RecordsSinceMs());
  if (heads.empty()) return std::nullopt;
  const int32_t position = heads.back().position;
  if (position - match.usable < kLoadTokensMin || position < waiting.min_cache_tokens) {
    return std::nullopt;
  }
  const int32_t from = std::max(
      match.servable, FirstBlock(index_.kv_.get(), position) * index_.options_.block_tokens);
  const size_t blocks = size_t(position - from) / index_.options_.block_tokens + 1;
  if (!index_.rates_.LoadWins(index_.tier_->level_of(heads.back().id),
                              blocks * index_.block_bytes_ + index_.state_bytes_,
                              index_.cost_.Recompute(match.usable, position))) {
    waiting.computes = true;
    return std::nullopt;
  }
  const uint32_t load = index_.flights_.Add();  // may move the records
  if (!Begin(seat, load, position)) {
    index_.Release(load, index_.flights_[load].id);
    return std::nullopt;
  }
  LeaseRecord& record = index_.flights_[seat];
  const Awaited awaited{index_.flights_[load].id, position};
  ++record.loads;
  record.loaded = awaited;
  record.loaded_from = index_.flights_[load].computed.logical;
  index_.flights_.Await(record, index_.flights_[load], awaited, position);
  index_.Settle();
  return awaited;
}

// A load is a sequence whose rows come from below: it shares what is there, has private blocks for
// the rest, and leaves a snapshot at its end. False: there is no room; `load` is to be released.
bool StateIndex::Loads::Begin(uint32_t seat, uint32_t load, int32_t position) {
  LeaseRecord& record = index_.flights_[load];
  const LeaseRecord& waiting = index_.flights_[seat];
  record.load = true;
  record.owner = index_.tenants_.Again(waiting.owner);
  record.root = waiting.root;
  index_.tree_.Ref(record.root);
  record.tokens.assign(waiting.tokens.begin(), waiting.tokens.begin() + position);
  record.prompt_tokens = position;
  record.bytes = sizeof(LeaseRecord) + record.tokens.capacity() * sizeof(TokenId);
  const uint32_t blocks =
      index_.has_kv()
          ? uint32_t(position / index_.options_.block_tokens - index_.kv_->FirstBlock(position)) + 2
          : 0;
  const Units units{.blocks = blocks, .states = index_.kind_->states_per_sequence()};
  if (!index_.MakeRoom(units, record.bytes, EvictReason::kRunning, false)) return false;
  const MatchResult match = index_.Match(record);  // what made room may have been a part of it
  const int32_t from = index_.Serve(match.path, std::min(match.known, position - 1));
  const auto heads =
      index_.records_.Reach(match.path, from, position, index_.kv_.get(), index_.RecordsSinceMs());
  if (heads.empty() || heads.back().position != position) return false;
  index_.Adopt(load, index_.UpTo(match.path, from), from);

  Move move;
  move.kind = Move::Kind::kFetch;
  move.id = index_.NextMove();
  move.records = heads;
  if (!TakeBlocks(record, position, &move).ok()) return false;
  if (!index_.kind_->TakeStateToLoad(record, position, heads.back().reason, &move)) return false;
  Load& begun = under_way_[move.id];
  begun = {index_.KeyOfRoot(record.root), record.tokens, load, {}};
  for (const RecordHead& head : heads) begun.sources.push_back(head.id);
  move.key = &begun.key;
  move.tokens = begun.tokens;
  index_.moves_.push_back(std::move(move));
  return true;
}

// Blocks behind what the load shares. What lies wholly before the window at its end is left out,
// and with it what is shared.
Status StateIndex::Loads::TakeBlocks(LeaseRecord& record, int32_t position, Move* move) {
  if (!index_.has_kv()) return OkStatus();
  const int32_t from = record.computed.logical;
  move->first_block =
      std::max(from / index_.options_.block_tokens, index_.kv_->FirstBlock(position));
  BlockNeed need = index_.NeedOf(record, position - from);
  if (move->first_block > from / index_.options_.block_tokens) {
    index_.blocks_.UnrefLease(record.table);
    record.table.assign(static_cast<size_t>(move->first_block), BlockId());
    record.shared_blocks = 0;
    need = index_.NeedOf(record, position - from);
  }
  REPRISE_TRY(index_.ReserveBlocks(record, need));
  move->blocks.assign(record.table.begin() + move->first_block, record.table.end());
  return OkStatus();
}

void StateIndex::Loads::End(uint64_t move, const MoveDone& done) {
  const auto at = under_way_.find(move);
  CHECK(at != under_way_.end());
  const Load load = std::move(at->second);
  under_way_.erase(at);
  Publish(load, done);
  index_.Release(load.seat, index_.flights_[load.seat].id);
}

// Everything that was read is published at once, or nothing of it.
void StateIndex::Loads::Publish(const Load& load, const MoveDone& done) {
  LeaseRecord& record = index_.flights_[load.seat];
  if (!done.ok) {
    ++index_.stats_.loads_failed;
    index_.FreePending(record);
    for (const TierRecordId id : load.sources) index_.ForgetRecord(id);
    return;
  }
  const int32_t from = record.computed.logical, upto = record.prompt_tokens;
  record.computed = {upto, upto};
  index_.kind_->PublishLoad(record);
  for (const TierRecordId id : load.sources) {
    if (index_.records_.Find(id) != nullptr) index_.records_.Touch(id, index_.now_ms_);
  }
  index_.rates_.NoteLoad(done.level, done.bytes, done.ns);
  ++index_.stats_.loads;
  index_.stats_.bytes_loaded += done.bytes;
  index_.stats_.tokens_loaded += static_cast<uint64_t>(upto - from);
  index_.flights_.ForEachWaitingFor(record, [&](LeaseRecord& waiting) {
    waiting.report.load_ns += done.ns;
    waiting.report.load_bytes += done.bytes;
    waiting.report.load_tier = index_.tier_->name_of(done.level);
  });
}

bool StateIndex::Loads::Reads(TierRecordId record) const {
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& one) {
    const auto& sources = one.second.sources;
    return std::find(sources.begin(), sources.end(), record) != sources.end();
  });
}

void StateIndex::Loads::Cancel(uint64_t move) {
  index_.CallOff(move);
  const auto at = under_way_.find(move);
  const uint32_t seat = at->second.seat;
  under_way_.erase(at);
  index_.Release(seat, index_.flights_[seat].id);
}

bool StateIndex::Loads::CancelOne() {
  if (under_way_.empty()) return false;
  ++index_.stats_.moves_cancelled;
  Cancel(under_way_.begin()->first);
  return true;
}

void StateIndex::Loads::CancelAll() {
  while (!under_way_.empty()) Cancel(under_way_.begin()->first);
}

void StateIndex::Loads::CancelOf(NodeId root) {
  std::vector<uint64_t> moves;
  for (const auto& [move, load] : under_way_) {
    if (index_.flights_[load.seat].root == root) moves.push_back(move);
  }
  for (const uint64_t move : moves) {
    if (Has(move)) Cancel(move);
  }
}

}  // namespace reprise
