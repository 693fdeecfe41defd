// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/vector.h"
#include "model/config/decoder.h"
#include "model/family.h"
#include "model/layers/mla.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/vocabulary.h"

namespace reprise::longcat_flash {

struct Config {
  DecoderConfig decoder;  // layer_count counts pairs of attentions
  MlaShape attention;
  MoeShape moe;
};
Result<Config> ReadConfig(ConfigReader* reader, DType kv);

// Layers of two latent attentions and two feed-forward blocks; a mixture of experts takes what the
// first block sees and joins the stream behind the second.
class LongcatFlash final : public FamilyModel {
 public:
  explicit LongcatFlash(const Config& config);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;
  void Run(const Step& home, const StepResults& results) const override;

 private:
  struct Half {
    MlaAttention attention;
    GatedMlp mlp;
    Vector attention_norm;
    Vector mlp_norm;
  };
  struct Layer {
    std::array<Half, 2> halves;
    MoeMlp moe;
  };
  Half MakeHalf(int layer, int half);

  Config config_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  Vector frequencies_;
};

}  // namespace reprise::longcat_flash
