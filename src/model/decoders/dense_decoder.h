// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/vector.h"
#include "model/config/decoder.h"
#include "model/decoders/mtp_block.h"
#include "model/family.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "model/layers/rotary.h"
#include "model/layers/vocabulary.h"

namespace reprise {

// What distinguishes the dense decoders from one another.
struct DenseTraits {
  std::string_view gguf_architecture;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
  bool rotary_pairs_in_gguf = false;
  bool fused = false;       // one matrix for q, k and v, one for gate and up
  bool pre_norms = true;    // norms before attention and MLP
  bool post_norms = false;  // norms behind attention and MLP, before the residual sum
  bool whole_norm = false;  // with qk_norm: over all heads at once
  bool late_norm = false;   // with qk_norm: behind RoPE
  bool sinks = false;       // of attention
  ValueForm norm_form = ValueForm::kPlain;
  MlpActivation activation = MlpActivation::kSwiGlu;
  float embedding_scale = 1;
  float attention_scale = 0;  // of q . k; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0;
  float residual_scale = 1;  // of what attention and MLP add to the stream
  float logit_scale = 1;
  float logit_softcap = 0;
  bool whole_pictures = false;  // rows of a picture see all of it
  // First layers behind each of which a row of a picture gets a further vector; these lie behind
  // its own.
  int picture_layers = 0;
  std::vector<bool> turns;                // which layers have RoPE; empty: all
  std::optional<RopeConfig> window_rope;  // of the layers with a window; else they are alike
  std::optional<MoeShape> moe;            // instead of the feed-forward block
  std::vector<bool> sparse;               // with moe: which layers have it; empty: all
  QueryGrowth query_growth;
  bool mtp = false;                       // with moe: a further layer predicts further tokens
  std::string_view gguf_mlp_norm = "ffn_norm.weight";
  std::string_view hf_q_norm = "q_norm";
  std::string_view hf_k_norm = "k_norm";
  // What GGUF files of the family say besides; the prefix ends with a dot.
  std::function<void(const std::string& prefix, GgufWriter* out)> describe;
};

// The plain decoder: h = x + attention(norm(x)); out = h + mlp(norm(h)), layers alike but for their
// windows, positions and experts.
class DenseDecoder final : public FamilyModel {
 public:
  DenseDecoder(const DecoderConfig& config, const DenseTraits& traits, DType kv);

  void DeclareTensors(TensorPlan* plan) override;
  void CompleteWeights() override;
  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;
  void Run(const Step& home, const StepResults& results) const override;
  void Predict(const Step& step, const ConstRows& before,
               const StepResults& results) const override;

 private:
  struct Layer {
    explicit Layer(Attention a) : attention(std::move(a)) {}

    Attention attention;
    std::optional<GatedMlp> mlp;  // one of the two
    std::optional<MoeMlp> moe;
    bool window = false;  // one that may be all of the context
    bool turns = true;    // has RoPE
    Vector attention_norm, attention_post_norm;
    Vector mlp_norm, mlp_post_norm;
  };

  void AddMtp(const AttentionShape& attention);
  void DeclareLayer(TensorPlan* plan, int index);
  void RunLayer(const Step& step, const Layer& layer, const RopeTable& rope, const Rows& x,
                const Rows& h, const Rows& y) const;
  // What rows of pictures begin with, where they have several vectors, and get behind a layer.
  void EmbedPictures(const Step& home, const Rows& x) const;
  void AddPictures(const Step& home, const Step& step, int layer, const Rows& x) const;

  DecoderConfig config_;
  DenseTraits traits_;
  Vocabulary vocabulary_;
  std::vector<Layer> layers_;
  Rotary rotary_;
  std::optional<Rotary> window_rotary_;
  std::unique_ptr<MtpBlock> mtp_;  // or null
};

// Reads the shared configuration and makes the model, or returns the reader's error.
Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* reader,
                                                      const DenseTraits& traits, DType kv);
// The same with a configuration that has been read.
Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* reader,
                                                      const DecoderConfig& config,
                                                      const DenseTraits& traits, DType kv);

}  // namespace reprise
