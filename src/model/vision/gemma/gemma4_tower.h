// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "model/config/reader.h"
#include "model/vision/planned_tower.h"

namespace reprise {

// The tower of Gemma 4: a transformer over the patches of a picture of any shape, with RMS norms on
// both sides of its blocks, gated feed-forward blocks, learned vectors for rows and for columns,
// rotary embedding by column and row; then the mean of the patches of a token, a norm and a
// product. Some towers clamp what goes into and comes out of every product.
class Gemma4Tower final : public PlannedTower {
 public:
  struct Shape {
    int depth = 0;
    int64_t dim = 0;
    int64_t hidden = 0;
    int heads = 0;
    int head_dim = 0;
    int64_t out = 0;
    int64_t table_side = 0;  // rows and columns that have a vector
    double theta = 100;
    float eps = 0;
    bool clamps = false;
    bool standardises = false;  // tokens, by channel
    int64_t width() const { return int64_t{heads} * head_dim; }
  };

  // What GGUF files call it (clip.vision.projector_type).
  static constexpr std::string_view kProjector = "gemma4v";

  // How pictures are prepared where nothing says it.
  static PatchRules DefaultRules();

  // Reads `vision_config` of config.json, or the metadata of a GGUF file of a tower alone (mmproj);
  // what is not known is refused by name.
  static Result<std::unique_ptr<Gemma4Tower>> Make(ConfigReader* config, PatchRules rules);

  void DeclareTensors(TensorPlan* plan) override;
  Status CompleteWeights(const OpContext& context) override;
  Result<std::unique_ptr<Look>> Begin(const OpContext& context,
                                      const Pixels& pixels) const override;

 private:
  friend class Gemma4Look;
  // A product between clamps.
  struct Linear {
    Matrix weight;
    // Least and most of what goes in, and of what comes out; empty: anything.
    std::array<std::vector<float>, 4> bounds;
  };
  struct Layer {
    Vector norm, post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
    Linear q, k, v, out, gate, up, down;
  };

  Gemma4Tower(const Shape& shape, bool gguf)
      : shape_(shape), gguf_(gguf), layers_(size_t(shape.depth)) {}
  void DeclareLinear(TensorPlan* plan, const std::string& hf, const std::string& gguf, int64_t rows,
                     int64_t cols, Linear* linear) const;

  const Shape shape_;
  const bool gguf_;
  std::vector<float> patch_weights_;  // until they are packed
  Matrix patch_, project_;
  std::vector<float> table_;  // [2, table_side, dim]: of columns, of rows
  std::vector<Layer> layers_;
  Vector frequencies_;                       // [head_dim / 4]
  Vector ones_, token_ones_;                 // weights of norms that have none
  std::vector<float> std_bias_, std_scale_;  // [dim]
};

}  // namespace reprise
