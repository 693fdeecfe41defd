// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/index/state_index.h"

namespace reprise {

// What comes up: the tier is asked what it has along a prompt that memory lacks, and where loading
// that is sooner done than computing it, the prompt waits for it. A load has a lease of its own,
// like a request whose rows a tier computes.
//
// Thread safety: none.
class StateIndex::Loads {
 public:
  explicit Loads(StateIndex* index) : index_(*index) {}

  // Asks the tier what it has of the prompt, once, and only if memory lacks enough of it.
  void SeekBelow(uint32_t seat);
  // Whether what a tier has of the prompt is not known yet, but could be of use.
  bool AwaitsAnswer(LeaseRecord& record) const;
  void Answer(uint64_t question);
  void Withdraw(uint64_t question) { questions_.erase(question); }

  // Begins to load what lower tiers have behind the match, if that is worth it, and lets the record
  // in `seat` wait for it.
  std::optional<Awaited> Await(uint32_t seat, const MatchResult& match);
  bool Has(uint64_t move) const { return under_way_.contains(move); }
  void End(uint64_t move, const MoveDone& done);
  bool Reads(TierRecordId record) const;

  void Cancel(uint64_t move);
  bool CancelOne();
  void CancelAll();
  void CancelOf(NodeId root);

  size_t size() const { return under_way_.size(); }
  size_t question_count() const { return questions_.size(); }

 private:
  struct Load {
    NamespaceKey key;
    std::vector<TokenId> tokens;
    uint32_t seat = 0;  // of its lease
    std::vector<TierRecordId> sources;
  };

  void AddFound(const LeaseRecord& record);
  bool Begin(uint32_t seat, uint32_t load, int32_t position);
  Status TakeBlocks(LeaseRecord& record, int32_t position, Move* move);
  void Publish(const Load& load, const MoveDone& done);

  StateIndex& index_;
  std::map<uint64_t, Load> under_way_;                // by the id of the move
  std::unordered_map<uint64_t, uint32_t> questions_;  // to the tier; the seat of the lease
};

}  // namespace reprise
