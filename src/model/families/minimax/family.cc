// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/families/minimax/minimax.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"minimax"};
constexpr std::string_view kGgufTypes[] = {"minimax-01"};

constexpr PublishedSize kPublished[] = {
    {"MiniMax-Text-01", R"({"model_type": "minimax", "hidden_size": 6144,
      "intermediate_size": 9216, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32,
      "num_experts_per_tok": 2, "vocab_size": 200064, "max_position_embeddings": 10240000,
      "rms_norm_eps": 1e-5, "rope_theta": 10000000.0, "full_attn_alpha_factor": 3.5565588200778455,
      "linear_attn_alpha_factor": 3.5565588200778455, "mlp_alpha_factor": 3.5565588200778455,
      "tie_word_embeddings": false, "layer_types": [
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention",
        "linear_attention", "linear_attention", "linear_attention", "linear_attention",
        "linear_attention", "linear_attention", "linear_attention", "full_attention"]})"},
};

constexpr std::string_view kAttention[] = {"full_attention"};
constexpr std::string_view kLinear[] = {"linear_attention"};

void ReadLayers(ConfigReader* reader, DecoderConfig* decoder) {
  const size_t count = size_t(decoder->layer_count);
  if (!reader->gguf() && reader->Has({"layer_types", ""})) {
    return ReadLayerTypes(reader, "layer_types", kAttention, kLinear, decoder);
  }
  decoder->attends.assign(count, false);
  const auto recurrent = reader->Ints({"", "attention.recurrent_layers"}, 4096, {0, 1});
  const int64_t interval = reader->Int({"", "full_attention_interval"}, {1, 1024}, 8);
  for (size_t i = 0; i < count; ++i) {
    // Transformers puts attention into the first of two layers where the file does not say.
    decoder->attends[i] = i < recurrent.size() ? recurrent[i] == 0
                          : reader->gguf()     ? (i + 1) % size_t(interval) == 0
                                               : i % 2 == 0;
  }
}

void ReadFactors(ConfigReader* reader, MiniMaxConfig* config) {
  const auto number = [&](const char* hf, const char* gguf, float fallback) {
    return float(reader->Number({hf, gguf}, {-1e6, 1e6}, double(fallback)));
  };
  config->full.alpha = number("full_attn_alpha_factor", "residual_scale", 1);
  const float alpha = reader->gguf() ? config->full.alpha : 1;
  config->linear.alpha = number("linear_attn_alpha_factor", "residual_scale_linear", alpha);
  config->mlp.alpha = number("mlp_alpha_factor", "residual_scale_mlp", alpha);
  config->full.beta = number("full_attn_beta_factor", "block_scale", 1);
  config->linear.beta = number("linear_attn_beta_factor", "block_scale_linear", 1);
  config->mlp.beta = number("mlp_beta_factor", "block_scale_mlp", 1);
}

void ReadExperts(ConfigReader* reader, MiniMaxConfig* config) {
  config->moe = ReadMoeShape(reader, config->decoder.dim, config->decoder.residual_gain());
  SetNormalised(reader, true, &config->moe);
  MoeNames& names = config->moe.names;
  if (reader->FindTensor({"model.layers.0.block_sparse_moe.gate.weight", ""}) != nullptr) {
    names.router = "block_sparse_moe.gate.weight";
    names.experts = "block_sparse_moe.experts";
    names.gate = "w1";
    names.up = "w3";
    names.down = "w2";
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  MiniMaxConfig config;
  DecoderConfig& decoder = config.decoder;
  reader->AddDefaults(R"({"rms_norm_eps": 1e-5, "num_local_experts": 8, "num_experts_per_tok": 2,
                          "num_key_value_heads": 8})");
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  ReadLayers(reader, &decoder);
  RopeExpectations expected;
  expected.theta = 1000000;
  decoder.rope = ReadRopeConfig(reader, decoder.head_dim, expected);
  if (reader->Has({"sliding_window", ""})) {
    reader->Refuse("sliding_window is not supported for minimax");
  }
  ReadFactors(reader, &config);
  ReadExperts(reader, &config);
  config.attention = MakeAttentionShape(decoder, kv);
  config.lightning = {decoder.dim, decoder.q_heads, decoder.head_dim, decoder.layer_count,
                      decoder.residual_gain()};
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<MiniMax>(config));
}

}  // namespace

extern const Family k_minimax;
const Family k_minimax = {"minimax", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
