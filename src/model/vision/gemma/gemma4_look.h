// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/vision/gemma/gemma4_tower.h"
#include "model/vision/patch_look.h"

namespace reprise {

// A picture in Gemma4Tower.
class Gemma4Look final : public PatchLook {
 public:
  static Result<std::unique_ptr<VisionTower::Look>> Begin(const Gemma4Tower& tower,
                                                          const OpContext& context,
                                                          const Pixels& pixels);

 private:
  using Layer = Gemma4Tower::Layer;

  Gemma4Look(const Gemma4Tower& tower, const Pixels& pixels);

  void Embed(const OpContext& context, int64_t begin, int64_t end) override;
  void StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void Merge(const OpContext& context, int64_t begin, int64_t end) override;

  const Gemma4Tower::Shape& shape() const { return tower_.shape_; }

  // y = clamp(W clamp(x)).
  void Project(const OpContext& context, const Gemma4Tower::Linear& linear, const ConstRows& x,
               const Rows& y) const;

  const Gemma4Tower& tower_;
};

}  // namespace reprise
