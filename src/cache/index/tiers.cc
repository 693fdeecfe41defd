// SPDX-License-Identifier: Apache-2.0
// StateIndex: what it has to do with lower tiers, beside what goes down and what comes up (moves/).
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cache/index/kind/entry_kind.h"
#include "cache/index/moves/loads.h"
#include "cache/index/moves/spills.h"

namespace reprise {

void StateIndex::SetTier(Tier* tier) {
  CHECK(tier_ == nullptr && namespaces_.empty());
  tier_ = tier;
}

NamespaceKey StateIndex::KeyOfRoot(NodeId root) const {
  const auto& [salt, digest] = namespace_of_.at(root)->first;
  return {digest, salt};
}

size_t StateIndex::transfers() const { return spills_->size() + loads_->size(); }

size_t StateIndex::moves_under_way() const { return transfers() + loads_->question_count(); }

uint64_t StateIndex::path_blocks() const { return loads_->path_blocks(); }

bool StateIndex::wishes() const { return spills_->wishes(); }

void StateIndex::WishAll() { spills_->WishAll(); }

int64_t StateIndex::RecordsSinceMs() const {
  const int64_t ttl_ms = options_.cache.ttl_ms;
  return ttl_ms > 0 ? now_ms_ - ttl_ms + 1 : std::numeric_limits<int64_t>::min();
}

void StateIndex::Hear(const Tier::News& news) {
  for (const MoveDone& done : news.done) {
    spills_->Has(done.id) ? spills_->End(done.id, done) : loads_->End(done.id, done);
  }
  spills_->BoundLagging();
  for (const TierRecordId id : news.lost) {
    if (const Records::Record* record = records_.Find(id); record != nullptr && record->ready) {
      records_.Remove(id);
      ++stats_.records_lost;
    }
  }
  if (!news.lost.empty()) Settle();
  for (const uint64_t question : news.answered) loads_->Answer(question);
  if (loads_->TakeAnswers()) Settle();
}

// One that has not begun does not begin; of another the tier hears.
void StateIndex::CallOff(uint64_t move) {
  if (std::erase_if(moves_, [&](const Move& one) { return one.id == move; }) > 0) return;
  tier_->Cancel(move);
}

// Memory that a running request needs: what is on its way down goes on being in memory only, what
// is on its way up is computed after all.
bool StateIndex::CancelOneMove() { return spills_->CancelOne() || loads_->CancelOne(); }

void StateIndex::CancelMoves() {
  spills_->CancelAll();
  loads_->CancelAll();
}

void StateIndex::CancelMovesOf(NodeId root) {
  spills_->CancelOf(root);
  loads_->CancelOf(root);
}

void StateIndex::ForgetRecord(TierRecordId id) {
  spills_->CancelRecord(id);
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
  const bool fetching = loads_->Reads(record->head.id);
  return fetching ? Residency::kFetching : Residency::kSpilled;
}

}  // namespace reprise
