// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cache/state_cache.h"
#include "engine/draft/drafter.h"
#include "model/executor.h"

namespace reprise {

// A small model with the vocabulary of the large one guesses what that will say: its likeliest
// token, then the likeliest behind that, and so on, a pass for each draft of all sequences.
//
// It has a cache of its own, under the law of the other: state is a function of tokens, is shared
// within a namespace and found again by the next turn. A sequence has a lease there, too, which
// follows its tokens. What it has not seen is run first, kRowsMax rows in a step, so that a long
// prompt holds up nobody; that pass gives the first draft. Drafts are run behind it and never
// committed: their K/V lies behind the end, and the recurrent state that the first pass leaves is
// kept apart until they are done:
//
//   rows       known tokens          d0      d1         the last draft is not run
//   state      live -> T0 and live   live    live       Commit: live is T0, the other one is free
//
// Thread safety: none; the engine's thread.
class ModelDrafter final : public Drafter {
 public:
  static constexpr int32_t kRowsMax = 256;

  // `executor` and `clock` must outlive it. Fails as StateCache::Create.
  static Result<std::shared_ptr<ModelDrafter>> Create(Executor& executor,
                                                      const CacheOptions& options,
                                                      const Clock& clock);

  Drafts source() const override { return Drafts::kModel; }
  bool Serves(Speculate mode) const override {
    return mode == Speculate::kAuto || mode == Speculate::kDraft;
  }
  void Propose(std::span<DraftJob* const> jobs) override;
  double draft_ms() const override { return draft_ms_; }
  DraftGrade grade() const override { return DraftGrade::kModel; }
  void End(DraftMemory* memory) override;

  const StateCache& cache() const { return *cache_; }

 private:
  // What a sequence has in the passes of a step.
  struct Run {
    DraftJob* job = nullptr;
    int32_t rows = 0;    // of the first pass
    int32_t drafts = 0;  // to be guessed; 0: there is more to catch up with
    StateId state;       // that the passes work in
    size_t row = 0;      // of the logits of the pass
    bool finite = true;
  };

  ModelDrafter(Executor& executor, std::unique_ptr<StateCache> cache, int32_t context_tokens,
               const Clock& clock);
  bool Follow(DraftJob* job);
  bool Start(DraftJob* job);
  bool Plan(DraftJob* job, int32_t rows_max, Run* run);
  // One pass: rows of `runs_` that guess a draft number `index`; 0: all, with what they know.
  Status Pass(int32_t index);
  void AddRows(Run* run, int32_t index);
  void Choose(int32_t index);

  Executor& executor_;
  const std::unique_ptr<StateCache> cache_;
  const int32_t context_tokens_;
  const Clock& clock_;
  double draft_ms_ = 1e-6;  // of a pass behind the first; of none yet: hardly any
  std::vector<Run> runs_;   // of the step, then what its passes fill anew
  std::vector<TokenId> tokens_;
  std::vector<SequenceSlice> slices_;
  std::vector<std::vector<StateTap>> taps_;
  std::vector<uint32_t> logit_rows_;
  std::vector<uint8_t> finite_;
  std::vector<float> logits_;
};

}  // namespace reprise
