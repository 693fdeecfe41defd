// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cache/index/state_index.h"
#include "cache/store/chore.h"
#include "device/background.h"
#include "tier/path_id.h"

namespace reprise {

// What comes up: the tier is asked what it has along a prompt that memory lacks, and where loading
// that is sooner done than computing it, the prompt waits for it. A load has a lease of its own,
// like a request whose rows a tier computes.
//
// Tiers know a prompt by its paths. Those of a long one take milliseconds. Beside requests that run
// this thread computes few of them in a step; another thread has the others, and the prompt waits
// for that as it waits for the tier's answer. Where it is not to wait any more, this thread waits
// for the piece under way at most (store/chore.h).
//
// Thread safety: none.
class StateIndex::Loads {
 public:
  explicit Loads(StateIndex* index) : index_(*index) {}

  // Asks the tier what it has of the prompt, once, and only if memory lacks enough of it.
  void SeekBelow(uint32_t seat);
  // Whether what a tier has of the prompt is not known yet, but could be of use.
  bool AwaitsAnswer(LeaseRecord& record) const;
  void Answer(uint64_t of_tier);
  // Once a step: what tiers have of prompts becomes known, where all of the answer is there by now.
  // True: some does.
  bool TakeAnswers();
  // Nobody asks for the record any more: its tokens may go.
  void Withdraw(LeaseRecord& record);
  // Blocks whose ids this thread has computed beside requests that run: tests count.
  uint64_t path_blocks() const { return path_blocks_; }

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

  // The paths of a prompt. They read its record's tokens, which stay until the chore is done.
  struct Paths {
    PromptPaths paths;
    Chore chore;
  };
  struct Question {
    uint32_t seat = 0;  // of the lease
    std::shared_ptr<Paths> paths;
    uint64_t of_tier = 0;  // that the tier has not answered yet; 0: none
    bool open() const { return of_tier != 0 || !paths->chore.done(); }
  };

  std::shared_ptr<Paths> BeginPaths(const LeaseRecord& record);
  void ComputeBeside(std::shared_ptr<Paths> paths);
  void AddFound(const LeaseRecord& record, const PromptPaths& prompt);
  bool Begin(uint32_t seat, uint32_t load, int32_t position);
  Status TakeBlocks(LeaseRecord& record, int32_t position, Move* move);
  void Publish(const Load& load, const MoveDone& done);

  StateIndex& index_;
  std::map<uint64_t, Load> under_way_;  // by the id of the move
  std::map<uint64_t, Question> questions_;
  uint64_t asked_ = 0;
  size_t blocks_left_ = 0;  // that may be computed in this step
  uint64_t path_blocks_ = 0;
  Background hasher_;  // ends before what it computes
};

}  // namespace reprise
