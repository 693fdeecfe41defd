// SPDX-License-Identifier: Apache-2.0
#include "model/families/olmo_hybrid/olmo_hybrid.h"

#include <cstdio>

#include "weights/format/gguf_writer.h"

namespace reprise {

OlmoHybrid::OlmoHybrid(const OlmoHybridConfig& config)
    : config_(config),
      vocabulary_({config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                   config.decoder.eps}) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  if (config.rope) {
    card_.rope_regime = decoder.rope.Regime();
    rotary_.emplace(decoder.rope);
  }
  MlpShape mlp;
  mlp.dim = decoder.dim;
  mlp.hidden = decoder.hidden;
  mlp.residual_gain = decoder.residual_gain();
  StateSpec& state = card_.state;
  layers_.reserve(size_t(decoder.layer_count));
  for (int i = 0; i < decoder.layer_count; ++i) {
    Layer& layer = layers_.emplace_back(GatedMlp(mlp, i));
    if (decoder.attends[size_t(i)]) {
      layer.attention.emplace(config.attention, i, state.layers.size());
      state.layers.push_back(layer.attention->state());
      layer.attention->AddCost(&state);
    } else {
      layer.delta.emplace(config.delta, i, state.layers.size());
      state.layers.push_back(layer.delta->state());
      layer.delta->AddCost(&state);
    }
  }
}

void OlmoHybrid::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  if (rotary_) rotary_->Declare(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
      plan->AddNorm(plan->Layer(i, hf, gguf), config_.decoder.dim, ValueForm::kPlain, out);
    };
    if (layer.attention) {
      layer.attention->Declare(plan);
      norm("post_attention_layernorm.weight", "post_attention_norm.weight", &layer.mixer_norm);
      layer.mlp.Declare(plan);
      norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &layer.mlp_norm);
    } else {
      norm("attention_layer_norm.weight", "attn_norm.weight", &layer.mixer_norm);
      layer.delta->Declare(plan);
      norm("feedforward_layer_norm.weight", "ffn_norm.weight", &layer.mlp_norm);
      layer.mlp.Declare(plan);
    }
  }
  vocabulary_.DeclareHead(plan);
}

void OlmoHybrid::CompleteWeights() {
  if (rotary_) rotary_->CompleteWeights();
  for (Layer& layer : layers_) {
    if (layer.delta) layer.delta->CompleteWeights();
  }
}

std::string OlmoHybrid::DescribeNumerics() const {
  char text[64];
  std::snprintf(text, sizeof(text), "write scale %.9g ", double(config_.delta.write_scale));
  return text + (config_.rope ? config_.decoder.rope.Describe() : std::string("no positions"));
}

void OlmoHybrid::DescribeGguf(GgufWriter* out) const {
  constexpr const char* kArchitecture = "olmo-hybrid";
  const std::string prefix = std::string(kArchitecture) + ".";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  DescribeDecoder(config_.decoder, kArchitecture, out);
  put("ssm.conv_kernel", config_.delta.reach);
  put("ssm.state_size", config_.delta.key_dim);
  put("ssm.inner_size", config_.delta.value_width());
  put("ssm.time_step_rank", config_.delta.heads);
  out->Put<float>(prefix + "ssm.write_scale", config_.delta.write_scale);
  out->Put<bool>(prefix + "rope.scaling.finetuned", config_.rope);
}

void OlmoHybrid::RunAttention(const Step& step, const Layer& layer, const RopeTable& rope,
                              const Rows& x, const Rows& y) const {
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  layer.attention->Forward(step, rope, x, y);
  RmsNorm(context, y, layer.mixer_norm.data(), 1, eps, y);
  Add(context, x, y, x);
  layer.mlp.Forward(step, x, y);
  RmsNorm(context, y, layer.mlp_norm.data(), 1, eps, y);
  Add(context, x, y, x);
}

void OlmoHybrid::RunDelta(const Step& step, const Layer& layer, const Rows& x, const Rows& h,
                          const Rows& y) const {
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  RmsNorm(context, x, layer.mixer_norm.data(), 1, eps, h);
  layer.delta->Forward(step, h, y);
  AddRmsNorm(context, x, y, layer.mlp_norm.data(), eps, h);
  layer.mlp.Forward(step, h, y);
  Add(context, x, y, x);
}

void OlmoHybrid::Run(const Step& home, const StepResults& results) const {
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  RopeTable rope = rotary_ ? rotary_->Table(home) : RopeTable{};
  Rows h = home.MakeRows(config_.decoder.dim);
  Rows y = home.MakeRows(config_.decoder.dim);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (const Step& next = home.OfLayer(int(i)); &next != step) {
      x = next.Bring(*step, x);
      if (rotary_) rope = next.Bring(*step, rope);
      h = next.MakeRows(config_.decoder.dim);
      y = next.MakeRows(config_.decoder.dim);
      step = &next;
    }
    if (layers_[i].attention) {
      RunAttention(*step, layers_[i], rope, x, y);
    } else {
      RunDelta(*step, layers_[i], x, h, y);
    }
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

}  // namespace reprise
