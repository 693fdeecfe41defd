// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/families/lfm2/gated_conv.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"lfm2", "lfm2_moe"};
constexpr std::string_view kGgufTypes[] = {"lfm2", "lfm2moe"};

constexpr PublishedSize kPublished[] = {
    {"LFM2-350M", R"({"model_type": "lfm2", "hidden_size": 1024, "block_ff_dim": 6656,
      "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
      "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
      "vocab_size": 65536, "max_position_embeddings": 128000, "norm_eps": 1e-5,
      "rope_theta": 1000000.0, "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14]})"},
    {"LFM2-1.2B", R"({"model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288,
      "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 65536, "max_position_embeddings": 128000, "norm_eps": 1e-5,
      "rope_theta": 1000000.0, "conv_L_cache": 3, "full_attn_idxs": [2, 5, 8, 10, 12, 14]})"},
    {"LFM2-8B-A1B", R"({"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168,
      "moe_intermediate_size": 1792, "num_experts": 32, "num_experts_per_tok": 4,
      "num_dense_layers": 2, "norm_topk_prob": true, "use_expert_bias": true,
      "routed_scaling_factor": 1.0, "num_hidden_layers": 24, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 65536, "max_position_embeddings": 128000,
      "norm_eps": 1e-5, "rope_theta": 1000000.0, "conv_L_cache": 3,
      "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention",
        "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv",
        "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv"]})"},
};

struct LfmConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  GatedConvShape conv;
  MlpShape mlp;
  std::optional<MoeShape> moe;  // behind the first layers
  int dense_layers = 0;         // with moe: those
  Vocabulary::Shape vocabulary;
};

// Short convolutions, and attention in some layers; each followed by a feed-forward block or by
// experts.
class Lfm2 final : public ResidualStack {
 public:
  explicit Lfm2(const LfmConfig& config)
      : ResidualStack(config.decoder, config.vocabulary, {.rope = true}), lfm_(config) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "operator_norm", "attn_norm");
      if (config.decoder.attends[size_t(i)]) {
        AddWithState<Attention>(config.attention);
      } else {
        AddWithState<GatedConv>(config.conv);
      }
      AddBlock(i, "ffn_norm", "ffn_norm");
      if (config.moe && i >= config.dense_layers) {
        Add<MoeMlp>(*config.moe);
      } else {
        Add<GatedMlp>(config.mlp);
      }
    }
  }

  std::string DescribeNumerics() const override {
    return config().rope.Describe() + (lfm_.moe ? DescribeRouting(*lfm_.moe) : "");
  }

  std::string_view gguf_architecture() const override { return kGgufTypes[lfm_.moe ? 1 : 0]; }

  void DescribeGguf(GgufWriter* out) const override {
    const std::string prefix = std::string(gguf_architecture()) + ".";
    DescribeDecoder(config(), gguf_architecture(), out);
    out->Put<uint32_t>(prefix + "shortconv.l_cache", uint32_t(lfm_.conv.reach));
    if (!lfm_.moe) return;
    DescribeMoe(*lfm_.moe, gguf_architecture(), out);
    DescribeExpertGroups(*lfm_.moe, prefix, out);
    out->Put<uint32_t>(prefix + "leading_dense_block_count", uint32_t(lfm_.dense_layers));
  }

 private:
  LfmConfig lfm_;
};

bool IsMoe(ConfigReader* reader) {
  return reader->gguf() ? reader->Has({"", "expert_count"})
                        : reader->Text({"model_type", ""}, "") == "lfm2_moe";
}

void ReadExperts(ConfigReader* reader, LfmConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  MoeShape moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain(), ExpertScore::kSigmoid);
  moe.routing.renormalise = reader->Bool({"norm_topk_prob", "expert_weights_norm"}, true);
  moe.routing.sum_floor = 1e-6f;
  moe.routing.scale =
      float(reader->Number({"routed_scaling_factor", "expert_weights_scale"}, {1e-6, 1e6}, 1.0));
  config->dense_layers = int(reader->Int({"num_dense_layers", "leading_dense_block_count"},
                                         {0, 4096}, reader->gguf() ? 0 : 2));
  MoeNames& names = moe.names;
  const std::string block = "blk." + std::to_string(config->dense_layers) + ".exp_probs_b.bias";
  if (reader->gguf() ? reader->FindTensor({"", block}) != nullptr
                     : reader->Bool({"use_expert_bias", ""}, true)) {
    names.selection_bias = "feed_forward.expert_bias";
  }
  names.router = "feed_forward.gate.weight";
  names.experts = "feed_forward.experts";
  names.gate = "w1";
  names.up = "w3";
  names.down = "w2";
  names.gate_up = "feed_forward.experts.gate_up_proj";
  names.all_down = "feed_forward.experts.down_proj";
  config->moe = moe;
}

// The width of the feed-forward block: two thirds of what the file says, rounded up.
int64_t ReadHidden(ConfigReader* reader) {
  if (reader->gguf()) return reader->Int({"", "feed_forward_length"}, kAnySize);
  if (IsMoe(reader)) return reader->Int({"intermediate_size", ""}, kAnySize);
  const bool older = reader->Has({"block_ff_dim", ""});
  int64_t hidden = reader->Int({older ? "block_ff_dim" : "intermediate_size", ""}, kAnySize);
  if (!reader->Bool({"block_auto_adjust_ff_dim", ""}, true)) return hidden;
  const int64_t step = reader->Int({"block_multiple_of", ""}, {1, 1 << 20}, 256);
  hidden = 2 * hidden / 3;
  hidden =
      int64_t(reader->Number({"block_ffn_dim_multiplier", ""}, {1e-3, 1e3}, 1.0) * double(hidden));
  hidden = (hidden + step - 1) / step * step;
  if (hidden < 1 || hidden > kAnySize.max) {
    reader->Refuse("a feed-forward block of width " + std::to_string(hidden) + " is not supported");
  }
  return hidden;
}

void ReadAttendingLayers(ConfigReader* reader, DecoderConfig* config) {
  constexpr std::string_view kAttention[] = {"full_attention"};
  constexpr std::string_view kOthers[] = {"conv"};
  const size_t count = size_t(config->layer_count);
  if (reader->gguf()) {
    if (config->attends.empty()) config->attends.assign(count, true);
    return;
  }
  if (reader->Has({"layer_types", ""})) {
    return ReadLayerTypes(reader, "layer_types", kAttention, kOthers, config);
  }
  config->attends.assign(count, false);
  for (const int64_t index : reader->Ints({"full_attn_idxs", ""}, count, {0, int64_t(count) - 1})) {
    config->attends[size_t(index)] = true;
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  LfmConfig config;
  DecoderConfig& decoder = config.decoder;
  const bool older = reader->Has({"block_norm_eps", ""});
  ReadStream(reader, {older ? "block_norm_eps" : "norm_eps", "attention.layer_norm_rms_epsilon"}, 0,
             &decoder);
  ReadHeads(reader, &decoder);
  ReadAttendingLayers(reader, &decoder);
  decoder.hidden = ReadHidden(reader);
  decoder.rope = ReadRopeConfig(reader, decoder.head_dim, {.theta = 1000000});
  ReadVocabulary(reader, reader->Bool({"tie_embedding", ""}, true), &decoder);
  config.attention = MakeAttentionShape(decoder, kv);
  config.attention.qk_norm = true;
  config.attention.hf_output = "out_proj";
  config.attention.hf_q_norm = "q_layernorm";
  config.attention.hf_k_norm = "k_layernorm";
  config.conv.dim = decoder.dim;
  config.conv.reach = int(reader->Int({"conv_L_cache", "shortconv.l_cache"}, {2, 16}));
  config.conv.residual_gain = decoder.residual_gain();
  config.mlp.dim = decoder.dim;
  config.mlp.hidden = decoder.hidden;
  config.mlp.residual_gain = decoder.residual_gain();
  config.mlp.hf = "feed_forward";
  config.mlp.hf_gate = "w1";
  config.mlp.hf_up = "w3";
  config.mlp.hf_down = "w2";
  if (IsMoe(reader)) ReadExperts(reader, &config);
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps};
  config.vocabulary.hf_norm = "embedding_norm";
  config.vocabulary.gguf_norm = "token_embd_norm";
  if (reader->Bool({"conv_bias", ""}, false)) {
    reader->Refuse("conv_bias is not supported for lfm2");
  }
  if (reader->Int({"sliding_window", "attention.sliding_window"}, {0, 1 << 30}, 0) != 0) {
    reader->Refuse("sliding_window is not supported for lfm2");
  }
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Lfm2>(config));
}

}  // namespace

extern const Family k_lfm2;
const Family k_lfm2 = {"lfm2", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
