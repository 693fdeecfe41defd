// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>

#include "model/families/olmo_hybrid/olmo_hybrid.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"olmo_hybrid"};
constexpr std::string_view kGgufTypes[] = {"olmo-hybrid"};

constexpr PublishedSize kPublished[] = {
    {"Olmo-Hybrid-7B", R"({"model_type": "olmo_hybrid", "hidden_size": 3840,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 30,
      "vocab_size": 100352, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
      "rope_parameters": {"rope_theta": null}, "tie_word_embeddings": false})"},
};

constexpr IntRange kHeads{1, 1024};
constexpr IntRange kHeadDim{1, 1024};

constexpr std::string_view kAttention[] = {"full_attention"};
constexpr std::string_view kLinear[] = {"linear_attention"};

void ReadLayers(ConfigReader* reader, DecoderConfig* decoder) {
  if (!reader->gguf() && reader->Has({"layer_types", ""})) {
    ReadLayerTypes(reader, "layer_types", kAttention, kLinear, decoder);
  } else if (!reader->gguf()) {
    decoder->attends.clear();
    for (int i = 0; i < decoder->layer_count; ++i) decoder->attends.push_back(i % 4 == 3);
    if (decoder->layer_count < 4) decoder->attends.back() = true;
  }
  const auto has = [&](bool attends) {
    return std::find(decoder->attends.begin(), decoder->attends.end(), attends) !=
           decoder->attends.end();
  };
  if (!has(true) || !has(false)) {
    reader->Refuse(
        "layer_types without both linear_attention and full_attention are not supported for "
        "olmo_hybrid");
    decoder->attends.assign(size_t(decoder->layer_count), true);
  }
}

void ReadDelta(ConfigReader* reader, const DecoderConfig& decoder, SignedDeltaShape* delta) {
  delta->dim = decoder.dim;
  delta->residual_gain = decoder.residual_gain();
  delta->heads =
      int(reader->Int({"linear_num_value_heads", "ssm.time_step_rank"}, kHeads, decoder.q_heads));
  if (reader->Int({"linear_num_key_heads", ""}, kHeads, decoder.q_heads) != delta->heads &&
      !reader->gguf()) {
    reader->Refuse(
        "linear_num_key_heads other than linear_num_value_heads is not supported for olmo_hybrid");
  }
  // Three quarters of the width, as Transformers rounds it.
  const int64_t key_dim =
      std::clamp<int64_t>(decoder.dim * 3 / (4 * delta->heads), 1, kHeadDim.max);
  delta->key_dim = int(reader->Int({"linear_key_head_dim", "ssm.state_size"}, kHeadDim, key_dim));
  if (reader->gguf()) {
    const int64_t inner = reader->Int({"", "ssm.inner_size"}, kAnySize);
    if (inner % delta->heads != 0 || inner / delta->heads > kHeadDim.max) {
      reader->Refuse("ssm.inner_size " + std::to_string(inner) + " does not divide into " +
                     std::to_string(delta->heads) + " heads");
    }
    delta->value_dim = int(std::clamp<int64_t>(inner / delta->heads, 1, kHeadDim.max));
  } else {
    delta->value_dim = int(reader->Int({"linear_value_head_dim", ""}, kHeadDim,
                                       std::min<int64_t>(2 * delta->key_dim, kHeadDim.max)));
  }
  delta->reach = int(reader->Int({"linear_conv_kernel_dim", "ssm.conv_kernel"}, {2, 16}, 4));
  const double scale = reader->Bool({"linear_allow_neg_eigval", ""}, true) ? 2 : 1;
  delta->write_scale = float(reader->Number({"", "ssm.write_scale"}, {1, 2}, scale));
}

// Published models have no positions: a rope_theta that is null.
void ReadPositions(ConfigReader* reader, OlmoHybridConfig* config) {
  config->rope = reader->gguf() ? reader->Bool({"", "rope.scaling.finetuned"}, false)
                                : !reader->IsNull("rope_parameters.rope_theta");
  if (reader->Has({"rope_scaling", ""}) && !reader->Has({"rope_theta", ""})) {
    reader->Refuse("rope_scaling without a rope_theta is not supported for olmo_hybrid");
  }
  if (config->rope) {
    RopeExpectations expected;
    expected.partial = true;
    config->decoder.rope = ReadRopeConfig(reader, config->decoder.head_dim, expected);
    return;
  }
  for (const char* member : {"rope_parameters.rope_type", "rope_parameters.type"}) {
    const std::string type = reader->Text({member, ""}, "default");
    if (type != "default") {
      reader->Refuse("rope_type '" + type +
                     "' beside a rope_theta of null is not supported for olmo_hybrid");
    }
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  OlmoHybridConfig config;
  DecoderConfig& decoder = config.decoder;
  reader->AddDefaults(R"({"rms_norm_eps": 1e-6})");
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadHeads(reader, &decoder);
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  ReadLayers(reader, &decoder);
  ReadDelta(reader, decoder, &config.delta);
  ReadPositions(reader, &config);
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for olmo_hybrid");
  }
  config.attention = MakeAttentionShape(decoder, kv);
  config.attention.qk_norm = config.attention.whole_norm = true;
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<OlmoHybrid>(config));
}

}  // namespace

extern const Family k_olmo_hybrid;
const Family k_olmo_hybrid = {"olmo_hybrid", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
