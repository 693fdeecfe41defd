// SPDX-License-Identifier: Apache-2.0
#include "model/families/qwen3_5/qwen3_5.h"
#include "model/layers/rope.h"
#include "weights/format/gguf_writer.h"

namespace reprise::qwen3_5 {

Qwen35::Qwen35(const Config& config)
    : config_(config),
      vocabulary_({config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                   config.decoder.eps, ValueForm::kOnePlus}) {
  const DecoderConfig& decoder = config_.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.context_length = decoder.context_length;
  StateSpec& state = card_.state;
  MlpShape mlp;
  mlp.dim = decoder.dim;
  mlp.hidden = decoder.hidden;
  mlp.residual_gain = decoder.residual_gain();
  layers_.reserve(size_t(decoder.layer_count));
  for (int i = 0; i < decoder.layer_count; ++i) {
    Layer& layer =
        layers_.emplace_back(Layer{{}, std::nullopt, std::nullopt, {}, GatedMlp(mlp, i)});
    const size_t entry = state.layers.size();
    if (config_.recurrent[size_t(i)]) {
      layer.delta.emplace(config_.delta, i, entry);
      state.layers.push_back(layer.delta->state());
      state.token_cost += layer.delta->cost_per_token();
    } else {
      layer.attention.emplace(config_.attention, i, entry);
      state.layers.push_back(layer.attention->state());
      layer.attention->AddCost(&state);
    }
  }
}

void Qwen35::DeclareTensors(TensorPlan* plan) {
  const int64_t dim = config_.decoder.dim;
  vocabulary_.DeclareEmbedding(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    plan->AddNorm(plan->Layer(i, "input_layernorm.weight", "attn_norm.weight"), dim,
                  ValueForm::kOnePlus, &layer.mixer_norm);
    if (layer.delta) {
      layer.delta->Declare(plan);
    } else {
      layer.attention->Declare(plan);
    }
    plan->AddNorm(plan->Layer(i, "post_attention_layernorm.weight", "post_attention_norm.weight"),
                  dim, ValueForm::kOnePlus, &layer.mlp_norm);
    layer.mlp.Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void Qwen35::CompleteWeights() { frequencies_ = InverseFrequencies(config_.decoder.rope); }

std::string Qwen35::DescribeNumerics() const {
  return config_.decoder.rope.Describe() + (config_.delta.tiled_heads ? " tiled" : " grouped");
}

void Qwen35::DescribeGguf(GgufWriter* out) const {
  const std::string prefix = "qwen35.";
  DescribeDecoder(config_.decoder, "qwen35", out);
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  const std::vector<int32_t> sections(config_.rope_sections.begin(), config_.rope_sections.end());
  out->PutArray<int32_t>(prefix + "rope.dimension_sections", sections);
  put("ssm.conv_kernel", config_.delta.taps);
  put("ssm.state_size", config_.delta.key_dim);
  put("ssm.group_count", config_.delta.key_heads);
  put("ssm.time_step_rank", config_.delta.value_heads);
  put("ssm.inner_size", config_.delta.value_width());
  if (config_.full_interval != 0) {
    put("full_attention_interval", config_.full_interval);
    return;
  }
  std::vector<uint8_t> flags(config_.recurrent.begin(), config_.recurrent.end());
  out->PutArray<bool>(prefix + "attention.recurrent_layers",
                      {reinterpret_cast<const bool*>(flags.data()), flags.size()});
}

}  // namespace reprise::qwen3_5
