// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cache/state_cache.h"
#include "engine/draft/drafter.h"

namespace reprise {

// Drafters that run no model: they know text that may be said again.

// What another request had behind the same tokens: a prompt that is asked again, an agent that
// tries again, several replies to one prompt. Within the namespace of the request only.
class TreeDrafter : public Drafter {
 public:
  explicit TreeDrafter(const StateCache& cache) : cache_(cache) {}
  Drafts source() const override { return Drafts::kTree; }
  bool Serves(Speculate mode) const override {
    return mode == Speculate::kAuto || mode == Speculate::kTree;
  }
  void Propose(std::span<DraftJob* const> jobs) override;

 private:
  const StateCache& cache_;
};

// What the client expects the reply to be, where it says so: a file that is to be edited. Where the
// reply leaves it, it is taken up again behind the same three tokens.
class PredictionDrafter : public Drafter {
 public:
  Drafts source() const override { return Drafts::kPrediction; }
  bool Serves(Speculate mode) const override { return mode != Speculate::kOff; }
  void Propose(std::span<DraftJob* const> jobs) override;
};

// What followed when prompt or reply had the latest tokens before: eight of them, or else three.
class NgramDrafter : public Drafter {
 public:
  Drafts source() const override { return Drafts::kNgram; }
  bool Serves(Speculate mode) const override {
    return mode == Speculate::kAuto || mode == Speculate::kNgram;
  }
  void Propose(std::span<DraftJob* const> jobs) override;
};

}  // namespace reprise
