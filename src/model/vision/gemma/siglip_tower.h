// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/config/reader.h"
#include "model/vision/planned_tower.h"

namespace reprise {

// The tower of Gemma 3: SigLIP, a transformer over the patches of a square picture, with layer
// norms, biases and a learned vector for every place; then the mean of the patches of a token, an
// RMS norm and a product.
class SiglipTower final : public PlannedTower {
 public:
  struct Shape {
    int depth = 0;
    int64_t dim = 0;
    int64_t hidden = 0;
    int heads = 0;
    int64_t out = 0;
    float eps = 0;
    int head_dim() const { return int(dim / heads); }
  };

  // What GGUF files call it (clip.projector_type).
  static constexpr std::string_view kProjector = "gemma3";

  // How pictures are prepared where nothing says it.
  static PatchRules DefaultRules();

  // Reads `vision_config` of config.json, or the metadata of a GGUF file of a tower alone (mmproj);
  // what is not known is refused by name. Of the rules, patches and tokens are read here.
  static Result<std::unique_ptr<SiglipTower>> Make(ConfigReader* config, PatchRules rules);

  void DeclareTensors(TensorPlan* plan) override;
  Status CompleteWeights(const OpContext& context) override;
  Result<std::unique_ptr<Look>> Begin(const OpContext& context,
                                      const Pixels& pixels) const override;

 private:
  friend class SiglipLook;
  struct Layer {
    Vector norm1, norm1_bias, norm2, norm2_bias;
    Matrix q, k, v, out, fc1, fc2;
    Vector q_bias, k_bias, v_bias, out_bias, fc1_bias, fc2_bias;
  };

  SiglipTower(const Shape& shape, bool nested, bool swapped)
      : shape_(shape), nested_(nested), swapped_(swapped), layers_(size_t(shape.depth)) {}

  const Shape shape_;
  const bool nested_;   // a folder's names have a "vision_model." in them
  const bool swapped_;  // a GGUF file from before ffn_up and ffn_down were what they say
  std::vector<float> patch_weights_, projection_;  // until they are packed
  Matrix patch_, project_;
  Vector patch_bias_;
  std::vector<float> table_;  // [patches, dim]
  std::vector<Layer> layers_;
  Vector norm_, norm_bias_;
  Vector token_norm_;
};

}  // namespace reprise
