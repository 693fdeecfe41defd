// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/vector.h"
#include "model/decoders/shared_kv_attention.h"
#include "model/families/gemma4/config.h"
#include "model/family.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// x += norm(attention(norm(x))); x += norm(feed-forward(norm(x)) [+ experts]); where tokens have
// an embedding for each layer, x += norm(W (gelu(V x) * that)); x *= a number of the layer.
class Gemma4Model final : public FamilyModel {
 public:
  Gemma4Model(const Gemma4Config& config, DType kv);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override { DescribeGemma4(config_, out); }
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Layer {
    SharedKvAttention attention;
    GatedMlp mlp;
    std::optional<MoeMlp> moe = {};
    Vector attention_norm = {}, attention_post_norm = {};
    Vector mlp_norm = {}, mlp_post_norm = {};
    // With experts: of the feed-forward block alone, before and behind the experts, and what the
    // router sees.
    Vector dense_post_norm = {}, experts_norm = {}, experts_post_norm = {}, router_norm = {};
    // With embeddings for each layer.
    Matrix gate = {}, projection = {};
    Vector layer_post_norm = {};
    std::vector<float> scale = {};  // [1]
  };
  // Rows that every layer writes, [rows, dim]; gate: what a layer gets of the tokens.
  struct Work {
    Rows h, y, further, other, gate;
  };

  void DeclareLayer(TensorPlan* plan, int index);
  void DeclareExperts(TensorPlan* plan, int index);
  // What the layers get of the tokens, one behind another: [rows, layers * layer_dim].
  Rows EmbedLayers(const Step& step, const ConstRows& x) const;
  Work MakeWork(const Step& step) const;
  void RunLayer(const Step& home, const Step& step, int index, const RopeTable& rope, const Rows& x,
                const Work& work) const;
  void AddExperts(const Step& step, const Layer& layer, const Rows& x, const Work& work) const;

  const Gemma4Config config_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  Rotary rotary_, window_rotary_;
  Matrix layer_embedding_, layer_projection_;
  Vector layer_norm_;
};

}  // namespace reprise
