// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "model/decoders/residual_stack.h"
#include "model/layers/attention.h"
#include "model/layers/mamba2.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"granitemoehybrid", "bamba"};
constexpr std::string_view kGgufTypes[] = {"granitehybrid"};

constexpr PublishedSize kPublished[] = {
    {"granite-4.0-h-micro", R"({"model_type": "granitemoehybrid", "hidden_size": 2048,
      "intermediate_size": 8192, "shared_intermediate_size": 8192, "num_hidden_layers": 40,
      "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 0,
      "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
      "mamba_d_conv": 4, "mamba_expand": 2, "attention_multiplier": 0.015625,
      "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 8,
      "position_embedding_type": "nope", "vocab_size": 100352,
      "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
      "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "attention", "mamba", "mamba", "mamba", "mamba"]})"},
    {"Bamba-9B", R"({"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128, "mamba_d_head": 64,
      "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2,
      "vocab_size": 128256, "max_position_embeddings": 262144, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": false})"},
};

constexpr std::string_view kAttentionTypes[] = {"attention", "full_attention"};
constexpr std::string_view kMambaTypes[] = {"mamba", "linear_attention"};

struct GraniteConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  Mamba2Shape mamba;
  MoeShape moe;     // experts == 0: none
  MlpShape shared;  // beside the experts, or alone
  Vocabulary::Shape vocabulary;
  float residual_scale = 1;
  bool rope = false;
  bool bamba = false;  // a folder of Bamba: other names, no factors
};

class GraniteMoeHybrid final : public ResidualStack {
 public:
  explicit GraniteMoeHybrid(const GraniteConfig& config)
      : ResidualStack(config.decoder, config.vocabulary,
                      {.residual_scale = config.residual_scale, .rope = config.rope}),
        granite_(config) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "input_layernorm", "attn_norm");
      if (config.decoder.attends[size_t(i)]) {
        AddWithState<Attention>(config.attention);
      } else {
        AddWithState<Mamba2>(config.mamba);
      }
      AddBlock(i, config.bamba ? "pre_ff_layernorm" : "post_attention_layernorm", "ffn_norm");
      if (config.moe.experts != 0) Add<MoeMlp>(config.moe);
      if (config.shared.hidden != 0) Add<GatedMlp>(config.shared);
    }
  }

  std::string DescribeNumerics() const override {
    char text[160];
    std::snprintf(text, sizeof(text), " scales %.9g %.9g %.9g %.9g rope %d ",
                  double(granite_.vocabulary.embedding_scale),
                  double(granite_.vocabulary.logit_scale), double(granite_.residual_scale),
                  double(granite_.attention.scale), int(granite_.rope));
    return reprise::DescribeNumerics(granite_.mamba) + text + config().rope.Describe() +
           DescribeRouting(granite_.moe);
  }

  void DescribeGguf(GgufWriter* out) const override {
    const std::string prefix = std::string(kGgufTypes[0]) + ".";
    DescribeDecoder(config(), kGgufTypes[0], out);
    DescribeMamba2(granite_.mamba, kGgufTypes[0], out);
    if (granite_.moe.experts != 0) {
      DescribeMoe(granite_.moe, kGgufTypes[0], out);
      out->Put<uint32_t>(prefix + "expert_shared_feed_forward_length",
                         uint32_t(granite_.shared.hidden));
    }
    out->Put<float>(prefix + "embedding_scale", granite_.vocabulary.embedding_scale);
    out->Put<float>(prefix + "residual_scale", granite_.residual_scale);
    out->Put<float>(prefix + "attention.scale", granite_.attention.scale);
    out->Put<float>(prefix + "logit_scale", 1 / granite_.vocabulary.logit_scale);
    // What llama.cpp takes for "has positions".
    out->Put<bool>(prefix + "rope.scaling.finetuned", granite_.rope);
  }

 private:
  GraniteConfig granite_;
};

void ReadPositions(ConfigReader* reader, GraniteConfig* config) {
  RopeExpectations expected;
  expected.partial = config->bamba;
  config->decoder.rope = ReadRopeConfig(reader, config->decoder.head_dim, expected);
  if (config->bamba) {
    config->rope = true;
    return;
  }
  const std::string type = reader->Text({"position_embedding_type", ""}, "nope");
  if (type != "rope" && type != "nope") {
    reader->Refuse("position_embedding_type '" + type +
                   "' is not supported for granitemoehybrid (known: rope, nope)");
  }
  config->rope =
      reader->gguf() ? reader->Bool({"", "rope.scaling.finetuned"}, true) : type == "rope";
}

void ReadFeedForward(ConfigReader* reader, GraniteConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  MlpShape& shared = config->shared;
  const int64_t experts = reader->Int({"num_local_experts", "expert_count"}, {0, 4096}, 0);
  shared.dim = decoder.dim;
  shared.residual_gain = decoder.residual_gain();
  if (config->bamba) {
    shared.hf = "feed_forward";
    config->decoder.hidden = shared.hidden = reader->Int({"intermediate_size", ""}, kAnySize);
    return;
  }
  shared.hf = "shared_mlp";
  shared.hf_both = "input_linear";
  shared.hf_down = "output_linear";
  if (experts == 0) {
    shared.hidden = reader->Int({"shared_intermediate_size", "feed_forward_length"}, kAnySize);
    config->decoder.hidden = shared.hidden;
    return;
  }
  shared.gguf = "_shexp";
  shared.hidden = reader->Int({"shared_intermediate_size", "expert_shared_feed_forward_length"},
                              {0, kAnySize.max}, 0);
  config->moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain());
  config->decoder.hidden = config->moe.hidden;
  // The softmax over the chosen is that over all, divided by the share of the chosen.
  SetNormalised(reader, true, &config->moe);
  MoeNames& names = config->moe.names;
  names.router = "block_sparse_moe.router.layer.weight";
  names.experts = "block_sparse_moe.experts";
  names.gate_up = "block_sparse_moe.input_linear.weight";
  names.all_down = "block_sparse_moe.output_linear.weight";
}

void ReadLayers(ConfigReader* reader, GraniteConfig* config) {
  DecoderConfig& decoder = config->decoder;
  if (config->bamba) {
    decoder.attends.assign(size_t(decoder.layer_count), false);
    for (const int64_t layer : reader->Ints({"attn_layer_indices", ""}, 4096, {0, 4096})) {
      if (layer < decoder.layer_count) decoder.attends[size_t(layer)] = true;
    }
  } else if (!reader->gguf()) {
    ReadLayerTypes(reader, "layer_types", kAttentionTypes, kMambaTypes, &decoder);
  } else if (decoder.attends.empty()) {
    decoder.attends.assign(size_t(decoder.layer_count), true);
  }
}

// Factors of attention, of what blocks add, of embeddings and of logits. Bamba has none.
void ReadFactors(ConfigReader* reader, GraniteConfig* config) {
  if (config->bamba) return;
  const auto scale = [&](const char* hf, const char* gguf, double fallback) {
    return float(reader->Number({hf, gguf}, {1e-6, 1e6}, fallback));
  };
  // llama.cpp's files of Bamba do not say.
  const double plain = 1 / std::sqrt(double(config->decoder.head_dim));
  config->attention.scale =
      scale("attention_multiplier", "attention.scale", reader->gguf() ? plain : 1);
  config->residual_scale = scale("residual_multiplier", "residual_scale", 1);
  config->vocabulary.embedding_scale = scale("embedding_multiplier", "embedding_scale", 1);
  config->vocabulary.logit_scale = 1 / scale("logits_scaling", "logit_scale", 1);
}

constexpr std::string_view kGraniteDefaults =
    R"({"num_local_experts": 8, "shared_intermediate_size": 1024})";
constexpr std::string_view kBambaDefaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
    "partial_rotary_factor": 0.5, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2})";

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  GraniteConfig config;
  DecoderConfig& decoder = config.decoder;
  config.bamba = !reader->gguf() && reader->Text({"model_type", ""}, "") == "bamba";
  reader->AddDefaults(config.bamba ? kBambaDefaults : kGraniteDefaults);
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  ReadLayers(reader, &config);
  ReadPositions(reader, &config);
  ReadFeedForward(reader, &config);
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    const bool known = config.bamba || bias == std::string_view("attention_bias");
    if (known && reader->Bool({bias, ""}, false)) {
      reader->Refuse(std::string(bias) + " is not supported for granitemoehybrid and bamba");
    }
  }
  config.attention = MakeAttentionShape(decoder, kv);
  config.attention.rotary_pairs_in_gguf = true;
  config.attention.scale = float(1 / std::sqrt(double(decoder.head_dim)));
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps};
  if (config.bamba) config.vocabulary.hf_norm = "final_layernorm";
  ReadFactors(reader, &config);
  config.mamba.dim = decoder.dim;
  config.mamba.eps = decoder.eps;
  config.mamba.hf_module = "mamba.";
  config.mamba.residual_gain = decoder.residual_gain();
  ReadMamba2Shape(reader, {.expand = "mamba_expand"}, &config.mamba);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<GraniteMoeHybrid>(config));
}

}  // namespace

extern const Family k_granitemoehybrid;
const Family k_granitemoehybrid = {"granitemoehybrid", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
