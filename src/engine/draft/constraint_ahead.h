// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sample/token_constraint.h"
#include "state/ids.h"

namespace reprise {

struct Sequence;

// A constraint that also says what may come behind drafts: a device that chooses tokens is told of
// all masks of a step before it answers, where a host would ask for them one after another.
//
// A copy of the constraint walks along the drafts, as far as they may come. What it finds is asked
// of a draft only if those before it were chosen, so a walk that ends early costs time alone.
//
// Thread safety: none; Look may run on another thread, as Fill may.
class ConstraintAhead final : public TokenConstraint {
 public:
  explicit ConstraintAhead(std::shared_ptr<TokenConstraint> constraint)
      : constraint_(std::move(constraint)) {}

  Status Fill(TokenMask* allowed) override { return constraint_->Fill(allowed); }
  Status Accept(TokenId token) override { return constraint_->Accept(token); }
  void Force(std::vector<TokenId>* tokens) override { constraint_->Force(tokens); }
  std::unique_ptr<TokenConstraint> Clone() const override { return constraint_->Clone(); }

  // Fills masks() for the drafts of a sequence with this constraint, whose own mask is there.
  void Look(const Sequence& sequence, std::span<const TokenId> drafts);
  // What may come behind each of the first drafts; those that have no mask are not to be used.
  std::span<const TokenMask> masks() const { return masks_; }

 private:
  const std::shared_ptr<TokenConstraint> constraint_;
  std::vector<TokenMask> masks_;
};

// That of a sequence which speculates on a device that chooses tokens.
ConstraintAhead& AheadOf(const Sequence& sequence);
// What may come next in the sequence, and, where it has such a constraint, behind its first drafts.
void FillMasks(Sequence& sequence, size_t drafts);

}  // namespace reprise
