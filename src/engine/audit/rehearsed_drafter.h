// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/draft/drafter.h"

namespace reprise {

// A drafter that knows the answers, having heard them before, and lies as often as it is told to:
// so that every length of accepted and of rejected runs happens. For audits and tests.
class RehearsedDrafter : public Drafter {
 public:
  struct Options {
    uint64_t seed = 0;
    int32_t vocab_size = 0;
    uint32_t silent_percent = 0;  // of the steps: it says nothing
    uint32_t junk_percent = 0;    // of the tokens: any other
  };
  explicit RehearsedDrafter(const Options& options) : options_(options) {}

  // A prompt and what was answered: tokens [prompt_tokens, size).
  void Hear(std::vector<TokenId> tokens, size_t prompt_tokens);

  Drafts source() const override { return Drafts::kOther; }
  bool Serves(Speculate mode) const override { return mode != Speculate::kOff; }
  void Propose(std::span<DraftJob* const> jobs) override;

 private:
  Options options_;
  std::vector<std::vector<TokenId>> texts_;
  // By a hash of the tokens up to there: a text, and the place behind them.
  std::unordered_map<uint64_t, std::pair<size_t, size_t>> places_;
};

}  // namespace reprise
