// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/families/qwen3_5/config.h"
#include "model/family.h"
#include "model/layers/attention.h"
#include "model/layers/gated_delta_net.h"
#include "model/layers/mlp.h"
#include "model/layers/vocabulary.h"

namespace reprise::qwen3_5 {

// A hybrid decoder: most layers mix tokens with a gated delta rule, every fourth attends.
class Qwen35 final : public FamilyModel {
 public:
  explicit Qwen35(const Config& config);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;
  void Forward(const OpContext& context, const BatchView& batch, const StateMemory& memory,
               float* logits) const override;

 private:
  struct Layer {
    std::vector<float> mixer_norm;
    std::optional<GatedDeltaNet> delta;  // one of the two
    std::optional<Attention> attention;
    std::vector<float> mlp_norm;
    GatedMlp mlp;
  };

  Config config_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  std::vector<float> frequencies_;
};

}  // namespace reprise::qwen3_5
