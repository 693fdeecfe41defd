// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/config/decoder.h"
#include "model/families/minimax/lightning.h"
#include "model/family.h"
#include "model/layers/attention.h"
#include "model/layers/moe.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// x = alpha * norm(x) + beta * block(norm(x)): the stream behind a block starts with its input as
// it was normed.
struct MiniMaxFactors {
  float alpha = 1;
  float beta = 1;
};

struct MiniMaxConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  LightningShape lightning;
  MoeShape moe;
  MiniMaxFactors full, linear, mlp;
};

class MiniMax final : public FamilyModel {
 public:
  explicit MiniMax(const MiniMaxConfig& config);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Layer {
    explicit Layer(MoeMlp m) : moe(std::move(m)) {}
    std::optional<Attention> attention;  // one of the two
    std::optional<Lightning> lightning;
    MoeMlp moe;
    Vector mixer_norm, mlp_norm;
  };

  void RunLayer(const Step& step, const Layer& layer, const RopeTable& rope, const Rows& x,
                const Rows& h, const Rows& y) const;

  const MiniMaxConfig config_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  Rotary rotary_;
};

}  // namespace reprise
