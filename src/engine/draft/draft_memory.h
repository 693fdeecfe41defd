// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/state_cache.h"
#include "engine/draft/ngram_index.h"
#include "engine/draft/speculate.h"
#include "state/ids.h"

namespace reprise {

// What drafters remember of one sequence. Each has a part of its own.
struct DraftMemory {
  // TreeDrafter: what somebody else had behind the first `behind_from` tokens, of which those up to
  // `behind_at` agree with this sequence.
  struct Tree {
    std::vector<TokenId> behind;
    size_t behind_from = 0;
    size_t behind_at = 0;
    size_t look_at = 0;  // not before there are so many tokens
  };
  // PredictionDrafter.
  struct Prediction {
    std::vector<TokenId> tokens;
    NgramIndex index{3};
    std::optional<size_t> next = 0;  // the token that is expected; none: the reply has left it
    size_t seen = 0;                 // tokens of the sequence that were compared, or its prompt
  };
  // NgramDrafter: over prompt and reply.
  struct Ngrams {
    NgramIndex longer{8};
    NgramIndex shorter{3};
  };

  // ModelDrafter: the same tokens, in the cache of the small model.
  struct Model {
    Lease lease;
    size_t known = 0;    // tokens that are in its vocabulary
    size_t look_at = 0;  // where there is no lease: not before there are so many tokens
    bool over = false;   // it has nothing more to say here
  };

  Tree tree;
  Prediction prediction;
  Ngrams ngrams;
  Model model;
};

// How likely drafts are to be right, learnt from those that were run or could have been.
class Acceptance {
 public:
  double Of(DraftGrade grade) const { return rates_[static_cast<size_t>(grade)]; }
  // A draft, those before which were right, was right or was not.
  void Note(DraftGrade grade, bool right) {
    constexpr double kWeight = 0.2;
    constexpr double kMost = 0.98;  // never certain
    double& rate = rates_[static_cast<size_t>(grade)];
    rate += kWeight * ((right ? kMost : 0.0) - rate);
  }

 private:
  // Before anything is known, by grade.
  std::array<double, kDraftGradeCount> rates_ = {0.8, 0.8, 0.7, 0.4, 0.7, 0.7, 0.6};
};

// Speculation of one sequence: its drafts, what they are worth, and what came of them.
struct Speculation {
  explicit Speculation(Speculate how) : mode(how) {}

  Speculate mode;
  DraftMemory memory;
  Acceptance acceptance;
  SpeculationReport report;

  // For the next place. Those that are rows of the step under way come first.
  std::vector<TokenId> drafts;
  DraftGrade grade = DraftGrade::kOther;
  Drafts source = Drafts::kOther;
};

}  // namespace reprise
