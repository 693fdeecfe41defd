// SPDX-License-Identifier: Apache-2.0
#include "engine/draft/constraint_ahead.h"

#include <algorithm>
#include <deque>

#include "base/clock.h"
#include "engine/sequence.h"

namespace reprise {

// As Engine::Continue and Sequence::FillAllowed go from token to token.
void ConstraintAhead::Look(const Sequence& sequence, std::span<const TokenId> drafts) {
  masks_.clear();
  if (!sequence.allowed_status.ok() || sequence.slow) return;
  const double begin = ThreadSeconds();
  const GenerateRequest& request = sequence.request;
  const std::unique_ptr<TokenConstraint> walker = constraint_->Clone();
  std::deque<TokenId> forced = sequence.forced;
  int32_t generated = sequence.generated;
  for (const TokenId draft : drafts) {
    const TokenMask& before = masks_.empty() ? *sequence.allowed : masks_.back();
    const auto& ends = request.end_tokens;
    const bool end = std::find(ends.begin(), ends.end(), draft) != ends.end();
    if (end || !before.allows(draft)) return;
    if (ThreadSeconds() - begin > Sequence::kSlowSeconds) return;
    // What must follow is said at once, or chosen where it has a probability.
    const bool was_forced = !forced.empty();
    if (was_forced) {
      forced.pop_front();
    } else if (!walker->Accept(draft).ok()) {
      return;
    }
    if (forced.empty() && (!was_forced || request.logprobs >= 0)) {
      std::vector<TokenId> tokens;
      walker->Force(&tokens);
      forced.assign(tokens.begin(), tokens.end());
    }
    ++generated;
    TokenMask mask(before.vocab_size(), false);
    if (!forced.empty()) {
      mask.Allow(forced.front());
    } else {
      if (!walker->Fill(&mask).ok()) return;
      if (sequence.before_minimum && generated < request.min_tokens) {
        TokenMask longer = mask;
        longer.And(*sequence.before_minimum);
        if (!longer.empty()) mask = std::move(longer);
      }
    }
    masks_.push_back(std::move(mask));
  }
}

ConstraintAhead& AheadOf(const Sequence& sequence) {
  return static_cast<ConstraintAhead&>(*sequence.request.constraint);
}

void FillMasks(Sequence& sequence, size_t drafts) {
  sequence.FillAllowed();
  if (drafts == 0) return;
  AheadOf(sequence).Look(sequence, std::span(sequence.speculation->drafts).first(drafts));
}

}  // namespace reprise
