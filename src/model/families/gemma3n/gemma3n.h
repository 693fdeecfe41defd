// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/vector.h"
#include "model/decoders/shared_kv_attention.h"
#include "model/families/gemma3n/config.h"
#include "model/families/gemma3n/streams.h"
#include "model/family.h"
#include "model/layers/mlp.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// A layer computes on one of several streams (streams.h): g = (a + norm(attention(h)) + h +
// norm(W V h)) / sqrt 2 with h = norm(a), then g += norm(feed-forward(norm(g))). Of what the
// streams take of that, the active one gates the token's embedding for the layer, which is added to
// all but the first.
class Gemma3nModel final : public FamilyModel {
 public:
  Gemma3nModel(const Gemma3nConfig& config, DType kv);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override { DescribeGemma3n(config_, out); }
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Layer {
    SharedKvAttention attention;
    GatedMlp mlp;
    StreamRouter router;
    Vector attention_norm = {}, attention_post_norm = {};
    Vector mlp_norm = {}, mlp_post_norm = {};
    Matrix laurel_left = {}, laurel_right = {};
    Vector laurel_norm = {};
    Matrix gate = {}, projection = {};
    Vector layer_post_norm = {};
  };
  // What a step has on one device.
  struct Lane {
    const Step* step = nullptr;
    Rows streams, predicted;  // [rows, streams * dim]
    Rows inputs;              // what the layers get of the tokens: [rows, layers * layer_dim]
    Rows h, g, y;             // [rows, dim]
    RopeTable rope, window_rope;
  };

  void DeclareLayer(TensorPlan* plan, int index);
  Rows EmbedLayers(const Step& step, const ConstRows& x) const;
  Lane MakeLane(const Step& step) const;
  Lane Moved(const Lane& lane, const Step& to) const;
  // From lane.streams to lane.predicted.
  void RunLayer(const Step& home, const Lane& lane, int index) const;
  void Compute(const Step& home, const Lane& lane, int index) const;

  const Gemma3nConfig config_;
  Vocabulary vocabulary_;
  StreamEnds ends_;
  std::vector<Layer> layers_;
  Rotary rotary_, window_rotary_;
  Matrix layer_embedding_, layer_projection_;
  Vector layer_norm_;
};

}  // namespace reprise
