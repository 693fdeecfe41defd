// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>
#include <string>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/layers/attention.h"
#include "model/layers/mamba2.h"
#include "model/layers/mlp.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"falcon_h1"};
constexpr std::string_view kGgufTypes[] = {"falcon-h1"};

constexpr PublishedSize kPublished[] = {
    {"Falcon-H1-0.5B", R"({"model_type": "falcon_h1", "hidden_size": 1024,
      "intermediate_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 32784,
      "max_position_embeddings": 16384, "rms_norm_eps": 1e-5, "rope_theta": 100000000000.0,
      "mamba_d_ssm": 1536, "mamba_d_state": 128, "mamba_n_heads": 24, "mamba_d_head": 64,
      "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": false,
      "tie_word_embeddings": false})"},
    {"Falcon-H1-1.5B", R"({"model_type": "falcon_h1", "hidden_size": 2048,
      "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 65537,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 100000000000.0,
      "mamba_d_ssm": 3072, "mamba_d_state": 256, "mamba_n_heads": 48, "mamba_d_head": 64,
      "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_rms_norm": false,
      "tie_word_embeddings": false})"},
};

struct FalconConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  Mamba2Shape mamba;
  MlpShape mlp;
  Vocabulary::Shape vocabulary;
};

// Every layer attends and scans the same normed input, then the feed-forward block.
class FalconH1 final : public ResidualStack {
 public:
  explicit FalconH1(const FalconConfig& config)
      : ResidualStack(config.decoder, config.vocabulary, {.rope = true}), shape_(config.mamba) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "input_layernorm", "attn_norm");
      AddWithState<Attention>(config.attention);
      AddWithState<Mamba2>(config.mamba);
      AddBlock(i, "pre_ff_layernorm", "ffn_norm", "");  // as llama.cpp names it
      Add<GatedMlp>(config.mlp);
    }
  }

  std::string DescribeNumerics() const override {
    return config().rope.Describe() + " " + reprise::DescribeNumerics(shape_);
  }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeDecoder(config(), kGgufTypes[0], out);
    DescribeMamba2(shape_, kGgufTypes[0], out);
  }

 private:
  Mamba2Shape shape_;
};

// The constants that activations are multiplied by; GGUF files have them in their weights.
void ReadScales(ConfigReader* reader, FalconConfig* config) {
  const auto scale = [&](const char* key) {
    return float(reader->Number({key, ""}, {-1e6, 1e6}, 1.0));
  };
  config->vocabulary.embedding_scale = scale("embedding_multiplier");
  config->vocabulary.logit_scale = scale("lm_head_multiplier");
  config->vocabulary.scales_in_gguf = true;
  config->attention.in_scale = scale("attention_in_multiplier");
  config->attention.key_scale = scale("key_multiplier");
  config->attention.out_scale = scale("attention_out_multiplier");
  config->mamba.out_scale = scale("ssm_out_multiplier");
  const float ssm_in = scale("ssm_in_multiplier");
  const std::vector<double> parts = reader->Numbers({"ssm_multipliers", ""}, 5);
  for (size_t i = 0; i < 5; ++i) {
    config->mamba.in_scales[i] = ssm_in * (i < parts.size() ? float(parts[i]) : 1.0f);
  }
  const std::vector<double> mlp = reader->Numbers({"mlp_multipliers", ""}, 2);
  if ((!parts.empty() && parts.size() != 5) || mlp.size() == 1) {
    reader->Refuse("ssm_multipliers does not have five numbers, or mlp_multipliers not two");
  }
  if (mlp.size() == 2) {
    config->mlp.gate_scale = float(mlp[0]);
    config->mlp.out_scale = float(mlp[1]);
  }
  if (config->decoder.tied &&
      config->vocabulary.embedding_scale != config->vocabulary.logit_scale) {
    reader->Refuse("one table for embeddings and head with different multipliers is not supported");
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  FalconConfig config;
  config.decoder = ReadDecoderConfig(reader);
  const DecoderConfig& decoder = config.decoder;
  config.attention = MakeAttentionShape(decoder, kv);
  config.mlp.dim = decoder.dim;
  config.mlp.hidden = decoder.hidden;
  config.mlp.residual_gain = decoder.residual_gain();
  config.mlp.hf = "feed_forward";
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps};
  config.vocabulary.hf_norm = "final_layernorm";
  Mamba2Shape& mamba = config.mamba;
  mamba.dim = decoder.dim;
  mamba.eps = decoder.eps;
  mamba.hf_module = "mamba.";
  mamba.residual_gain = decoder.residual_gain();
  ReadMamba2Shape(reader, {}, &mamba);
  mamba.norm = reader->gguf() ? reader->FindTensor({"", "blk.0.ssm_norm.weight"}) != nullptr
                              : reader->Bool({"mamba_rms_norm", ""}, false);
  if (mamba.norm && !reader->gguf() && reader->Bool({"mamba_norm_before_gate", ""}, true)) {
    reader->Refuse("mamba_rms_norm with mamba_norm_before_gate is not supported for falcon_h1");
  }
  const int64_t inner = reader->Int({"mamba_d_ssm", ""}, kAnySize, mamba.inner());
  if (inner != mamba.inner()) {
    reader->Refuse("mamba_d_ssm " + std::to_string(inner) + " is not that of the Mamba heads, " +
                   std::to_string(mamba.inner()));
  }
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias"}) {
    if (reader->Bool({key, ""}, false)) {
      reader->Refuse(std::string(key) + " is not supported for falcon_h1");
    }
  }
  ReadScales(reader, &config);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<FalconH1>(config));
}

}  // namespace

extern const Family k_falcon_h1;
const Family k_falcon_h1 = {"falcon_h1", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
