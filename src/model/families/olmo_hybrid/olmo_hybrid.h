// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/config/decoder.h"
#include "model/families/olmo_hybrid/signed_delta.h"
#include "model/family.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

struct OlmoHybridConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  SignedDeltaShape delta;
  bool rope = false;
};

// Two kinds of layers. With attention, norms stand behind the blocks: x += norm(block(x)); with
// linear attention before them: x += block(norm(x)).
class OlmoHybrid final : public FamilyModel {
 public:
  explicit OlmoHybrid(const OlmoHybridConfig& config);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Layer {
    explicit Layer(GatedMlp m) : mlp(std::move(m)) {}
    std::optional<Attention> attention;  // one of the two
    std::optional<SignedDelta> delta;
    GatedMlp mlp;
    Vector mixer_norm, mlp_norm;
  };

  void RunAttention(const Step& step, const Layer& layer, const RopeTable& rope, const Rows& x,
                    const Rows& y) const;
  void RunDelta(const Step& step, const Layer& layer, const Rows& x, const Rows& h,
                const Rows& y) const;

  const OlmoHybridConfig config_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  std::optional<Rotary> rotary_;
};

}  // namespace reprise
