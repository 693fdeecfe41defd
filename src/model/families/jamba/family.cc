// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>
#include <string>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/layers/attention.h"
#include "model/layers/mamba.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"jamba"};
constexpr std::string_view kGgufTypes[] = {"jamba"};

constexpr PublishedSize kPublished[] = {
    {"Jamba-v0.1", R"({"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
      "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2,
      "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
      "vocab_size": 65536, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false})"},
    {"AI21-Jamba-Reasoning-3B", R"({"model_type": "jamba", "hidden_size": 2560,
      "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 20,
      "num_key_value_heads": 1, "attn_layer_period": 14, "attn_layer_offset": 7,
      "num_experts": 1, "num_experts_per_tok": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
      "mamba_expand": 2, "mamba_dt_rank": 160, "vocab_size": 65536,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"Jamba-tiny", R"({"model_type": "jamba", "hidden_size": 1024, "intermediate_size": 3584,
      "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
      "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
      "expert_layer_offset": 1, "num_experts": 8, "num_experts_per_tok": 2,
      "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 64,
      "vocab_size": 65536, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false})"},
};

constexpr MambaKeys kMambaKeys = {
    "mamba_d_state",   "mamba_dt_rank",  "mamba_d_conv", "mamba_expand", "",
    "mamba_proj_bias", "mamba_conv_bias"};

struct JambaConfig {
  DecoderConfig decoder;
  std::vector<bool> sparse;  // layers with experts
  AttentionShape attention;
  MambaShape mamba;
  MlpShape mlp;
  MoeShape moe;
  Vocabulary::Shape vocabulary;
};

// Mamba in most layers, attention without positions in some, experts in every other.
class Jamba final : public ResidualStack {
 public:
  explicit Jamba(const JambaConfig& config)
      : ResidualStack(config.decoder, config.vocabulary, {}),
        mamba_(config.mamba),
        moe_(config.moe) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "input_layernorm", "attn_norm");
      if (config.decoder.attends[size_t(i)]) {
        AddWithState<Attention>(config.attention);
      } else {
        AddWithState<Mamba>(config.mamba);
      }
      AddBlock(i, "pre_ff_layernorm", "ffn_norm");
      if (config.sparse[size_t(i)]) {
        Add<MoeMlp>(config.moe);
      } else {
        Add<GatedMlp>(config.mlp);
      }
    }
  }

  std::string DescribeNumerics() const override { return "jamba" + DescribeRouting(moe_); }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeDecoder(config(), kGgufTypes[0], out);
    DescribeMamba(mamba_, kGgufTypes[0], out);
    if (moe_.experts > 1) DescribeMoe(moe_, kGgufTypes[0], out);
  }

 private:
  MambaShape mamba_;
  MoeShape moe_;
};

// Layers `offset`, `offset + period`, ...
std::vector<bool> ReadEvery(ConfigReader* reader, const char* period_key, int64_t period,
                            const char* offset_key, int64_t offset, int count) {
  period = reader->Int({period_key, ""}, {1, 4096}, period);
  offset = reader->Int({offset_key, ""}, {0, 4096}, offset);
  std::vector<bool> layers;
  for (int i = 0; i < count; ++i) layers.push_back(i % period == offset);
  return layers;
}

void ReadLayers(ConfigReader* reader, JambaConfig* config) {
  DecoderConfig& decoder = config->decoder;
  const int count = decoder.layer_count;
  if (!reader->gguf()) {
    decoder.attends = ReadEvery(reader, "attn_layer_period", 8, "attn_layer_offset", 4, count);
    config->sparse = ReadEvery(reader, "expert_layer_period", 2, "expert_layer_offset", 1, count);
    if (reader->Int({"num_experts", ""}, {1, 4096}, 16) == 1) config->sparse.assign(count, false);
    return;
  }
  if (decoder.attends.empty()) decoder.attends.assign(size_t(count), true);
  for (int i = 0; i < count; ++i) {
    const std::string router = "blk." + std::to_string(i) + ".ffn_gate_inp.weight";
    config->sparse.push_back(reader->FindTensor({"", router}) != nullptr);
  }
}

MoeNames MakeNames() {
  MoeNames names;
  names.router = "feed_forward.router.weight";
  names.experts = "feed_forward.experts";
  names.gate_up = "feed_forward.experts.gate_up_proj";
  names.all_down = "feed_forward.experts.down_proj";
  return names;
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  JambaConfig config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  if (reader->Int({"sliding_window", ""}, {0, int64_t{1} << 40}, 0) != 0) {
    reader->Refuse("sliding_window is not supported for jamba");
  }
  ReadLayers(reader, &config);
  config.attention = MakeAttentionShape(decoder, kv);
  config.mamba.dim = decoder.dim;
  config.mamba.norms = MambaShape::Norms::kLearned;
  config.mamba.norm_eps = decoder.eps;
  config.mamba.hf_module = "mamba.";
  config.mamba.residual_gain = decoder.residual_gain();
  ReadMambaShape(reader, kMambaKeys, &config.mamba);
  config.mlp.dim = decoder.dim;
  config.mlp.hidden = decoder.hidden;
  config.mlp.hf = "feed_forward";
  config.mlp.residual_gain = decoder.residual_gain();
  for (const bool sparse : config.sparse) {
    if (sparse) config.moe.experts = 2;
  }
  if (config.moe.experts != 0) {
    config.moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain());
    config.moe.names = MakeNames();
    SetNormalised(reader, false, &config.moe);
  }
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps};
  config.vocabulary.hf_norm = "final_layernorm";
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Jamba>(config));
}

}  // namespace

extern const Family k_jamba;
const Family k_jamba = {"jamba", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
