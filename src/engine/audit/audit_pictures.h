// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/sight/placed_pictures.h"
#include "engine/sight/sight.h"
#include "model/executor.h"
#include "state/batch.h"

namespace reprise {

// The pictures that requests of audits show: few, of any pixels and sizes that the tower takes, so
// that prompts share them.
class AuditPictures {
 public:
  // REQUIRES: the tower is one of a model.
  explicit AuditPictures(const TowerCard& tower);

  // The tokens of one of them.
  void Show(Rng* rng, std::vector<TokenId>* tokens) const;
  // Prompts are cut anywhere: what is left of a picture goes.
  void DropParts(std::vector<TokenId>* tokens) const;
  // REQUIRES: they are whole.
  std::vector<PlacedPicture> FindIn(std::span<const TokenId> tokens) const;

 private:
  // The picture that begins at a token, if all of it is there.
  const SeenPicture* WholeAt(std::span<const TokenId> tokens, size_t at) const;

  std::vector<std::shared_ptr<const SeenPicture>> pictures_;
};

// What a cold run sees: all of a sequence, in one step.
class ColdSight {
 public:
  // The tower of the executor looks at the pictures.
  ColdSight(Executor& executor, const AuditPictures& pictures, std::span<const TokenId> tokens);
  // Valid as long as this.
  void AddTo(BatchView* batch) const;

 private:
  Sight sight_;
  std::vector<TokenId> tokens_;
  std::vector<std::array<int32_t, 3>> places_;
  std::vector<PictureRows> rows_;
};

}  // namespace reprise
