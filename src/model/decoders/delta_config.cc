// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "model/config/rope_sections.h"
#include "model/decoders/delta_decoder.h"

namespace reprise {
namespace {

constexpr IntRange kHeads{1, 1024};
constexpr IntRange kHeadDim{1, 1024};

std::string Named(const DeltaDecoderConfig& config) { return std::string(config.variant.name); }

// Full attention in the last layer of each group of `interval`, unless the file lists the layers.
void ReadLayerTypes(ConfigReader* reader, DeltaDecoderConfig* config) {
  const size_t count = size_t(config->decoder.layer_count);
  config->full_interval =
      int(reader->Int({"full_attention_interval", "full_attention_interval"}, {1, 1024}, 4));
  config->recurrent.resize(count);
  for (size_t i = 0; i < count; ++i) {
    config->recurrent[i] = (i + 1) % size_t(config->full_interval) != 0;
  }
  const std::vector<bool> by_interval = config->recurrent;
  const auto types = reader->Texts({"layer_types", ""}, 4096);
  // GGUF may list blocks that predict further tokens behind the layers.
  const auto flags = reader->Ints({"", "attention.recurrent_layers"}, 4096, {0, 1});
  for (size_t i = 0; i < count && i < types.size(); ++i) {
    if (types[i] != "linear_attention" && types[i] != "full_attention") {
      reader->Refuse("layer type '" + types[i] + "' is not supported for " + Named(*config));
    }
    config->recurrent[i] = types[i] == "linear_attention";
  }
  for (size_t i = 0; i < count && i < flags.size(); ++i) config->recurrent[i] = flags[i] != 0;
  if ((!types.empty() && types.size() != count) || (!flags.empty() && flags.size() < count)) {
    reader->Refuse("layer_types does not have one entry per layer");
  }
  if (config->recurrent != by_interval) config->full_interval = 0;
}

void ReadDelta(ConfigReader* reader, DeltaDecoderConfig* config) {
  GatedDeltaNetShape& delta = config->delta;
  delta.dim = config->decoder.dim;
  delta.eps = config->decoder.eps;
  delta.key_heads = int(reader->Int({"linear_num_key_heads", "ssm.group_count"}, kHeads));
  delta.value_heads = int(reader->Int({"linear_num_value_heads", "ssm.time_step_rank"}, kHeads));
  delta.key_dim = int(reader->Int({"linear_key_head_dim", "ssm.state_size"}, kHeadDim));
  delta.reach = int(reader->Int({"linear_conv_kernel_dim", "ssm.conv_kernel"}, {2, 16}));
  if (reader->gguf()) {
    const int64_t inner = reader->Int({"", "ssm.inner_size"}, kAnySize);
    if (inner % delta.value_heads != 0 || inner / delta.value_heads > kHeadDim.max) {
      reader->Refuse("ssm.inner_size " + std::to_string(inner) + " does not divide into " +
                     std::to_string(delta.value_heads) + " value heads");
    }
    delta.value_dim = int(inner / delta.value_heads);
  } else {
    delta.value_dim = int(reader->Int({"linear_value_head_dim", ""}, kHeadDim));
  }
  if (delta.value_heads % delta.key_heads != 0) {
    reader->Refuse(std::to_string(delta.value_heads) + " value heads cannot share " +
                   std::to_string(delta.key_heads) + " key heads evenly");
  }
  delta.joined_inputs = config->variant.joined_inputs;
  // Files of Qwen3-Next keep the heads grouped.
  delta.tiled_heads = reader->gguf() && !delta.joined_inputs;
  delta.residual_gain = config->decoder.residual_gain();
}

void ReadAttention(ConfigReader* reader, DType kv, DeltaDecoderConfig* config) {
  const DecoderConfig& decoder = config->decoder;
  AttentionShape& shape = config->attention;
  shape = MakeAttentionShape(decoder, kv);
  shape.qk_norm = true;
  shape.norm_form = ValueForm::kOnePlus;
  shape.gated = true;
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for " + Named(*config));
  }
  if (!reader->Bool({"attn_output_gate", ""}, true)) {
    reader->Refuse("attention without attn_output_gate is not supported for " + Named(*config));
  }
  const std::string gate = reader->Text({"output_gate_type", ""}, "swish");
  if (gate != "swish" && gate != "silu") {
    reader->Refuse("output gate '" + gate + "' is not supported for " + Named(*config) +
                   " (only swish is)");
  }
  if (std::any_of(decoder.windows.begin(), decoder.windows.end(), [](int w) { return w != 0; })) {
    reader->Refuse("sliding_window is not supported for " + Named(*config));
  }
  if (config->variant.joined_inputs) return;
  config->rope_sections = ReadRopeSections(reader, &config->decoder.rope);
}

void ReadExperts(ConfigReader* reader, DeltaDecoderConfig* config) {
  if (!config->variant.moe) {
    if (reader->Has({"num_experts", "expert_count"})) {
      reader->Refuse("mixtures of experts are another family than " + Named(*config));
    }
    return;
  }
  const DecoderConfig& decoder = config->decoder;
  MoeShape moe = ReadMoeShape(reader, decoder.dim, decoder.residual_gain());
  moe.routing.renormalise = reader->Bool({"norm_topk_prob", "expert_weights_norm"}, true);
  moe.shared_hidden = reader->Int(
      {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"}, kAnySize);
  moe.shared_gated = true;
  config->moe = moe;
  config->sparse = ReadSparseLayers(reader, decoder.layer_count);
  // Only layers without experts have a width of their own.
  if (std::find(config->sparse.begin(), config->sparse.end(), false) != config->sparse.end()) {
    config->decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize);
  }
}

// GGUF files have the block behind the layers; some folders have it without saying so.
void ReadMtp(ConfigReader* reader, DeltaDecoderConfig* config) {
  if (!reader->mtp()) return;
  const auto has = [&](const std::string& prefix) {
    return reader->FindTensor({prefix + "fc.weight", ""}) != nullptr;
  };
  const std::string prefix = !has("mtp.") && has("model.mtp.") ? "model.mtp." : "mtp.";
  const int64_t count =
      reader->Int({"mtp_num_hidden_layers", "nextn_predict_layers"}, {0, 64}, has(prefix) ? 1 : 0);
  // Of several nobody has said how they follow each other.
  if (count == 1 || reader->mtp_beside()) config->mtp = prefix;
}

}  // namespace

Result<DeltaDecoderConfig> ReadDeltaDecoderConfig(ConfigReader* reader, const DeltaVariant& variant,
                                                  DType kv) {
  DeltaDecoderConfig config;
  config.variant = variant;
  DecoderExpectations expected;
  expected.mlp = !variant.moe;
  expected.rope.partial = true;
  config.decoder = ReadDecoderConfig(reader, expected);
  ReadLayerTypes(reader, &config);
  ReadDelta(reader, &config);
  ReadAttention(reader, kv, &config);
  ReadExperts(reader, &config);
  ReadMtp(reader, &config);
  REPRISE_TRY(reader->status());
  return config;
}

}  // namespace reprise
