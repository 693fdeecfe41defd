// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/vector.h"
#include "model/config/reader.h"
#include "model/tensor_plan.h"
#include "model/vision/tower.h"

namespace reprise {

// The tower of Qwen3.5 and Qwen3.6: a transformer over all patches of one picture, with layer norms
// and biases, a learned table of positions that is stretched over the picture, rotary embedding by
// row and column, and an end that makes one vector of 2 x 2 patches.
class QwenTower final : public VisionTower {
 public:
  struct Shape {
    int depth = 0;
    int64_t dim = 0;
    int64_t hidden = 0;
    int heads = 0;
    int64_t out = 0;
    int table_side = 0;  // of the table of positions
    double theta = 10000;
    int head_dim() const { return int(dim / heads); }
  };

  // Reads `vision_config` of config.json; what is not known is refused by name.
  static Result<std::unique_ptr<QwenTower>> Make(ConfigReader* config, const PatchRules& rules);

  // With pointers into this object; called once.
  void DeclareTensors(TensorPlan* plan);
  // When the tensors are in place.
  Status CompleteWeights(const OpContext& context);
  void HoldVectors(DeviceBuffer memory) { vectors_ = std::move(memory); }
  TowerCard* mutable_card() { return &card_; }

  Result<std::unique_ptr<Look>> Begin(const OpContext& context,
                                      const Pixels& pixels) const override;

 private:
  friend class QwenLook;
  struct Layer {
    Vector norm1, norm1_bias, norm2, norm2_bias;
    Matrix qkv, proj, fc1, fc2;
    Vector qkv_bias, proj_bias, fc1_bias, fc2_bias;
  };

  explicit QwenTower(const Shape& shape) : shape_(shape), layers_(size_t(shape.depth)) {}

  const Shape shape_;
  std::vector<uint8_t> axes_;         // of the angles: rows, then columns
  Vector frequencies_;                // [head_dim / 2]
  std::vector<float> patch_weights_;  // until they are packed
  Matrix patch_;
  Vector patch_bias_;
  std::vector<float> table_;  // [table_side, table_side, dim]
  std::vector<Layer> layers_;
  Vector merge_norm_, merge_norm_bias_;
  Matrix merge1_, merge2_;
  Vector merge1_bias_, merge2_bias_;
  DeviceBuffer vectors_;
};

}  // namespace reprise
