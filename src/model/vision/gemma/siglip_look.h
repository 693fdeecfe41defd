// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/vision/gemma/siglip_tower.h"
#include "model/vision/patch_look.h"

namespace reprise {

// A picture in SiglipTower.
class SiglipLook final : public PatchLook {
 public:
  static Result<std::unique_ptr<VisionTower::Look>> Begin(const SiglipTower& tower,
                                                          const OpContext& context,
                                                          const Pixels& pixels);

 private:
  using Layer = SiglipTower::Layer;

  SiglipLook(const SiglipTower& tower, const Pixels& pixels);

  void Embed(const OpContext& context, int64_t begin, int64_t end) override;
  void StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void Merge(const OpContext& context, int64_t begin, int64_t end) override;

  const SiglipTower::Shape& shape() const { return tower_.shape_; }

  const SiglipTower& tower_;
};

}  // namespace reprise
