// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "model/config/reader.h"
#include "model/vision/planned_tower.h"

namespace reprise {

// The tower of Qwen3-VL, Qwen3.5 and Qwen3.6: a transformer over all patches of one picture, with
// layer norms and biases, a learned table of positions that is stretched over the picture, rotary
// embedding by row and column, and an end that makes one vector of 2 x 2 patches. Qwen3-VL has such
// ends behind some of its layers, too (deepstack): their vectors lie behind the token's own.
class QwenTower final : public PlannedTower {
 public:
  struct Shape {
    int depth = 0;
    int64_t dim = 0;
    int64_t hidden = 0;
    int heads = 0;
    int64_t out = 0;        // of one vector of a token
    std::vector<int> deep;  // layers with an end behind them, ascending
    int table_side = 0;     // of the table of positions
    double theta = 10000;
    int head_dim() const { return int(dim / heads); }
    int64_t width() const { return out * (1 + std::ssize(deep)); }
  };

  // What GGUF files call it (clip.projector_type).
  static constexpr std::string_view kProjector = "qwen3vl_merger";

  // Reads `vision_config` of config.json, or the metadata of a GGUF file of a tower alone (mmproj);
  // what is not known is refused by name. REQUIRES: rules.frames == 2 for GGUF.
  static Result<std::unique_ptr<QwenTower>> Make(ConfigReader* config, const PatchRules& rules);

  void DeclareTensors(TensorPlan* plan) override;
  Status CompleteWeights(const OpContext& context) override;
  Result<std::unique_ptr<Look>> Begin(const OpContext& context,
                                      const Pixels& pixels) const override;

 private:
  friend class QwenLook;
  struct Layer {
    Vector norm1, norm1_bias, norm2, norm2_bias;
    Matrix qkv, proj, fc1, fc2;
    Vector qkv_bias, proj_bias, fc1_bias, fc2_bias;
  };

  struct End {
    Vector norm, norm_bias;
    Matrix fc1, fc2;
    Vector fc1_bias, fc2_bias;
  };

  QwenTower(const Shape& shape, bool gguf)
      : shape_(shape), gguf_(gguf), layers_(size_t(shape.depth)), ends_(shape.deep.size()) {}
  void DeclareEnds(TensorPlan* plan);
  void JoinFrames();

  const Shape shape_;
  const bool gguf_;
  std::vector<uint8_t> axes_;         // of the angles: rows, then columns
  Vector frequencies_;                // [head_dim / 2]
  std::vector<float> patch_weights_;  // until they are packed
  std::vector<float> second_frame_;   // of a GGUF file, until it is among them
  Matrix patch_;
  Vector patch_bias_;
  std::vector<float> table_;  // [table_side, table_side, dim]
  std::vector<Layer> layers_;
  End end_;
  std::vector<End> ends_;  // of shape_.deep
};

}  // namespace reprise
