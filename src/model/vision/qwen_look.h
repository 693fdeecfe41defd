// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "kernels/ops.h"
#include "model/layers/step.h"
#include "model/live_state.h"
#include "model/vision/qwen_tower.h"

namespace reprise {

// A picture in QwenTower. Every layer has two passes over the patches, kRows of them a part: the
// first stores keys and values, the second looks at all of them.
class QwenLook final : public VisionTower::Look {
 public:
  static Result<std::unique_ptr<VisionTower::Look>> Begin(const QwenTower& tower,
                                                          const OpContext& context,
                                                          const Pixels& pixels);
  Result<bool> Advance(const OpContext& context) override;
  double done() const override;
  DeviceBuffer TakeVectors() override { return std::move(vectors_); }

 private:
  static constexpr int64_t kRows = 512;
  using Layer = QwenTower::Layer;

  QwenLook(const QwenTower& tower, const Pixels& pixels);

  const QwenTower::Shape& shape() const { return tower_.shape_; }
  Rows Stream(int64_t begin, int64_t end) const;
  Rows Queries(int64_t begin, int64_t end) const;
  void Embed(const OpContext& context, int64_t begin, int64_t end);
  void StoreInputs(const OpContext& context, const Layer& layer, int64_t begin, int64_t end);
  void MixPatches(const OpContext& context, const Layer& layer, int64_t begin, int64_t end);
  void Merge(const OpContext& context, int64_t begin, int64_t end);
  std::vector<float> TablePositions(int64_t begin, int64_t end) const;
  std::vector<RopePlace> Places(int64_t begin, int64_t end) const;

  const QwenTower& tower_;
  const Pixels& pixels_;
  const int columns_;  // of patches
  const int rows_;
  const int64_t patches_;
  // Which pass is next (embedding, two for each layer, the end), and which patch of it.
  int pass_ = 0;
  int64_t at_ = 0;
  DeviceBuffer stream_;            // [patches, dim]
  DeviceBuffer queries_;           // [patches, dim]
  std::optional<LiveState> kept_;  // keys and values of one layer
  DeviceBuffer vectors_;
};

}  // namespace reprise
