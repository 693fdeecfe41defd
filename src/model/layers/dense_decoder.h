// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config/decoder.h"
#include "model/family.h"
#include "model/layers/attention.h"
#include "model/layers/swiglu.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// What distinguishes the dense decoders from one another.
struct DenseTraits {
  std::string_view gguf_architecture;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
  bool rotary_pairs_in_gguf = false;
};

// The plain decoder: h = x + attention(norm(x)); out = h + mlp(norm(h)), all layers alike.
class DenseDecoder final : public FamilyModel {
 public:
  DenseDecoder(const DecoderConfig& config, const DenseTraits& traits, DType kv);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override { return config_.rope.Describe(); }
  void DescribeGguf(GgufWriter* out) const override;
  void Forward(const OpContext& context, const BatchView& batch, const StateMemory& memory,
               float* logits) const override;

 private:
  struct Layer {
    std::vector<float> attention_norm;
    Attention attention;
    std::vector<float> mlp_norm;
    SwiGluMlp mlp;
  };

  DecoderConfig config_;
  DenseTraits traits_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  std::vector<float> rope_divisors_;  // of the file; empty if it has none
  std::vector<float> frequencies_;
};

// Reads the shared configuration and makes the model, or returns the reader's error.
Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* config,
                                                      const DenseTraits& traits, DType kv);

}  // namespace reprise
