// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "model/vision/patch_look.h"
#include "model/vision/qwen_tower.h"

namespace reprise {

// A picture in QwenTower.
class QwenLook final : public PatchLook {
 public:
  static Result<std::unique_ptr<VisionTower::Look>> Begin(const QwenTower& tower,
                                                          const OpContext& context,
                                                          const Pixels& pixels);

 private:
  using Layer = QwenTower::Layer;

  QwenLook(const QwenTower& tower, const Pixels& pixels);

  void Embed(const OpContext& context, int64_t begin, int64_t end) override;
  void StoreInputs(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void MixPatches(const OpContext& context, int index, int64_t begin, int64_t end) override;
  void Merge(const OpContext& context, int64_t begin, int64_t end) override;

  const QwenTower::Shape& shape() const { return tower_.shape_; }
  // The vectors that an end makes of the stream, those number `index` of the tokens.
  void RunEnd(const OpContext& context, const QwenTower::End& end, int64_t index,
              int64_t first_patch, int64_t end_patch);
  void TablePosition(int64_t patch, float* out) const;

  const QwenTower& tower_;
};

}  // namespace reprise
