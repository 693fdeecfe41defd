// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <cmath>
#include <memory>
#include <string>

#include "model/decoders/residual_stack.h"
#include "model/families/recurrent_gemma/rg_lru.h"
#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "tensor/codec.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"recurrent_gemma"};
// llama.cpp does not know this family: these files are ours alone.
constexpr std::string_view kGgufTypes[] = {"recurrent_gemma"};

constexpr PublishedSize kPublished[] = {
    {"recurrentgemma-2b", R"({"model_type": "recurrent_gemma", "hidden_size": 2560,
      "intermediate_size": 15360, "num_hidden_layers": 26, "num_attention_heads": 10,
      "num_key_value_heads": 1, "lru_width": 2560, "attention_window_size": 2048,
      "conv1d_width": 4, "block_types": ["recurrent", "recurrent", "attention"],
      "logits_soft_cap": 30.0, "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.5,
      "rope_theta": 10000.0, "hidden_activation": "gelu_pytorch_tanh", "vocab_size": 256000})"},
};

// What the models were trained for; their configuration does not say.
constexpr int64_t kContext = 8192;

struct GemmaConfig {
  DecoderConfig decoder;
  AttentionShape attention;
  RgLruShape lru;
  MlpShape mlp;
  Vocabulary::Shape vocabulary;
};

// Linear recurrences, with attention over a window in some layers; each followed by a gated
// feed-forward block.
class RecurrentGemma final : public ResidualStack {
 public:
  explicit RecurrentGemma(const GemmaConfig& config)
      : ResidualStack(config.decoder, config.vocabulary,
                      {.norm_form = ValueForm::kOnePlus, .rope = true}),
        gemma_(config) {
    for (int i = 0; i < config.decoder.layer_count; ++i) {
      AddBlock(i, "temporal_pre_norm", "attn_norm");
      if (config.decoder.attends[size_t(i)]) {
        AddWithState<Attention>(config.attention);
      } else {
        AddWithState<GriffinRecurrence>(config.lru);
      }
      AddBlock(i, "channel_pre_norm", "ffn_norm");
      Add<GatedMlp>(config.mlp);
    }
  }

  std::string DescribeNumerics() const override { return config().rope.Describe(); }

  void DescribeGguf(GgufWriter* out) const override {
    DescribeDecoder(config(), kGgufTypes[0], out);
    out->Put<uint32_t>("recurrent_gemma.lru_width", uint32_t(gemma_.lru.width));
    out->Put<uint32_t>("recurrent_gemma.ssm.conv_kernel", uint32_t(gemma_.lru.reach));
    out->Put<float>("recurrent_gemma.final_logit_softcapping", gemma_.vocabulary.softcap);
  }

 private:
  GemmaConfig gemma_;
};

// The square root of the width, rounded to bfloat16 as the published models do.
float EmbeddingScale(int64_t dim) {
  float scale = std::sqrt(float(dim));
  std::byte rounded[2];
  QuantiseRow(DType::kBF16, &scale, rounded, 1);
  DequantiseRow(DType::kBF16, rounded, &scale, 1);
  return scale;
}

// The types of the first layers, repeated.
void ReadTypes(ConfigReader* reader, DecoderConfig* config) {
  const size_t count = size_t(config->layer_count);
  if (reader->gguf()) {
    if (config->attends.empty()) config->attends.assign(count, true);
    return;
  }
  const auto types = reader->Texts({"block_types", ""}, 4096);
  config->attends.assign(count, false);
  for (size_t i = 0; i < count && !types.empty(); ++i) {
    const std::string& type = types[i % types.size()];
    config->attends[i] = type == "attention";
    if (type != "attention" && type != "recurrent") {
      reader->Refuse("block type '" + type + "' is not supported for recurrent_gemma");
    }
  }
}

void ReadRecurrence(ConfigReader* reader, const DecoderConfig& decoder, RgLruShape* lru) {
  lru->dim = decoder.dim;
  lru->residual_gain = decoder.residual_gain();
  lru->width = reader->Int({"lru_width", "lru_width"}, kAnySize, decoder.dim);
  lru->blocks = decoder.q_heads;
  lru->reach = int(reader->Int({"conv1d_width", "ssm.conv_kernel"}, {2, 16}, 4));
  if (lru->width % lru->blocks != 0) {
    reader->Refuse("lru_width " + std::to_string(lru->width) + " does not divide into " +
                   std::to_string(lru->blocks) + " blocks");
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  GemmaConfig config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, kContext, &decoder);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, true, &decoder);
  CheckActivation(reader, "gelu_pytorch_tanh");
  ReadTypes(reader, &decoder);
  decoder.rope = ReadRopeConfig(reader, decoder.head_dim, {.partial = true});
  if (decoder.rope.scaling != RopeConfig::Scaling::kNone) {
    reader->Refuse("recurrent_gemma has no rope_type but default");
  }
  if (reader->Has({"sliding_window", ""})) {
    reader->Refuse("sliding_window is not supported for recurrent_gemma: attention_window_size is");
  }
  const int64_t hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  decoder.hidden = reader->gguf() ? hidden : hidden / 2;  // config.json counts gate and up
  if (decoder.hidden < 1) reader->Refuse("intermediate_size is too small");
  const int window = int(reader->Int({"attention_window_size", "attention.sliding_window"},
                                     {1, int64_t{1} << 30}, 2048));
  for (const bool attends : decoder.attends) decoder.windows.push_back(attends ? window : 0);
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for recurrent_gemma");
  }
  config.attention = MakeAttentionShape(decoder, kv);
  config.attention.window = window;
  config.attention.output_bias = true;
  config.attention.hf = "temporal_block";
  ReadRecurrence(reader, decoder, &config.lru);
  config.mlp.dim = decoder.dim;
  config.mlp.hidden = decoder.hidden;
  config.mlp.activation = MlpActivation::kGeGlu;
  config.mlp.bias = true;
  config.mlp.hf = "mlp_block";
  config.mlp.residual_gain = decoder.residual_gain();
  config.vocabulary = {decoder.vocab_size, decoder.dim, decoder.tied, decoder.eps,
                       ValueForm::kOnePlus};
  config.vocabulary.embedding_scale = EmbeddingScale(decoder.dim);
  config.vocabulary.softcap =
      float(reader->Number({"logits_soft_cap", "final_logit_softcapping"}, {0, 1e6}, 30.0));
  config.vocabulary.hf_norm = "final_norm";
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<RecurrentGemma>(config));
}

}  // namespace

extern const Family k_recurrent_gemma;
const Family k_recurrent_gemma = {"recurrent_gemma", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
