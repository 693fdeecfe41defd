// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/families/lfm2/gated_conv.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"lfm2"};
constexpr std::string_view kGgufTypes[] = {"lfm2"};

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
};

struct LfmConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  GatedConvShape conv;
  MlpShape mlp;
  Vocabulary::Shape vocabulary;
};

// Short convolutions, and attention in some layers; each followed by a feed-forward block.
class Lfm2 final : public ResidualStack {
 public:
  explicit Lfm2(const LfmConfig& config)
      : ResidualStack(config.decoder, config.vocabulary, {.rope = true}),
        reach_(config.conv.reach) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "operator_norm", "attn_norm");
      if (config.decoder.attends[size_t(i)]) {
        AddWithState<Attention>(config.attention);
      } else {
        AddWithState<GatedConv>(config.conv);
      }
      AddBlock(i, "ffn_norm", "ffn_norm");
      Add<GatedMlp>(config.mlp);
    }
  }

  std::string DescribeNumerics() const override { return config().rope.Describe(); }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeDecoder(config(), kGgufTypes[0], out);
    out->Put<uint32_t>("lfm2.shortconv.l_cache", uint32_t(reach_));
  }

 private:
  int reach_;
};

// The width of the feed-forward block: two thirds of what the file says, rounded up.
int64_t ReadHidden(ConfigReader* reader) {
  if (reader->gguf()) return reader->Int({"", "feed_forward_length"}, kAnySize);
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
  config.attention.hf_norm = "layernorm";
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
