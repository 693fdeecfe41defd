// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cache/state_cache.h"
#include "engine/draft/drafter.h"
#include "model/executor.h"

namespace reprise {

// The model guesses for itself, with its block that predicts further tokens (Executor::Predict):
// the likeliest token behind the last one, then the likeliest behind that, and so on, a pass of the
// block for each draft of all sequences.
//
// What the block knows of the tokens so far is part of the state of the sequence: steps of the
// model bring it up to date, so there is nothing to catch up with and nothing to roll back. K/V of
// guesses lies behind the end, where the step that runs them writes over it:
//
//   rows      computed          d0         d1          the last draft is not run
//   token     the last token    d0         d1
//   before    h, of the state   m of d0's  m of d1's   guess: d0, d1, d2
//
// Guesses are made of the tokens that are said most (ModelCard::common_tokens), which takes a
// fraction of the time, as long as nearly all of what is said is among them.
//
// Thread safety: none.
class MtpDrafter final : public Drafter {
 public:
  // All must outlive it. REQUIRES: the executor's card has an mtp_state.
  MtpDrafter(Executor& executor, StateCache& cache, const Clock& clock)
      : executor_(executor), cache_(cache), clock_(clock) {}

  Drafts source() const override { return Drafts::kMtp; }
  bool Serves(Speculate mode) const override {
    return mode == Speculate::kAuto || mode == Speculate::kMtp;
  }
  void Propose(std::span<DraftJob* const> jobs) override;
  bool improves() const override { return true; }
  double draft_ms() const override { return draft_ms_; }
  DraftGrade grade() const override { return DraftGrade::kMtp; }

 private:
  struct Run {
    DraftJob* job = nullptr;
    int32_t drafts = 0;
  };
  bool Plan(DraftJob* job, Run* run);
  // The guess number `index` of all runs that have so many.
  Status Pass(int32_t index);

  // Of how many tokens the next guesses are made.
  size_t Width() const;

  Executor& executor_;
  StateCache& cache_;
  const Clock& clock_;
  double rare_ = 0;         // share of what was said that is not common, lately
  double draft_ms_ = 1e-6;  // of a pass; of none yet: hardly any
  std::vector<Run> runs_;   // of the step, those with most drafts first
  std::vector<TokenId> tokens_;
  std::vector<SequenceSlice> slices_;
  std::vector<uint32_t> rows_;
  std::vector<std::array<int32_t, 3>> places_;  // BatchView::places, where one has pictures
  std::vector<uint8_t> finite_;
  std::vector<float> hidden_;  // [runs, dim]
  std::vector<float> logits_;
};

}  // namespace reprise
