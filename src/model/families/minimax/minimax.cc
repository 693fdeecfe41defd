// SPDX-License-Identifier: Apache-2.0
#include "model/families/minimax/minimax.h"

#include <cstdio>

#include "kernels/activation_ops.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

// x = alpha * h + beta * y; neither is kept.
void Continue(const OpContext& context, const MiniMaxFactors& factors, const Rows& h, const Rows& y,
              const Rows& x) {
  if (factors.alpha != 1) Scale(context, h, factors.alpha, h);
  if (factors.beta != 1) Scale(context, y, factors.beta, y);
  Add(context, h, y, x);
}

}  // namespace

MiniMax::MiniMax(const MiniMaxConfig& config)
    : config_(config),
      vocabulary_({config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                   config.decoder.eps}),
      rotary_(config.decoder.rope) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  card_.rope_regime = decoder.rope.Regime();
  StateSpec& state = card_.state;
  layers_.reserve(size_t(decoder.layer_count));
  for (int i = 0; i < decoder.layer_count; ++i) {
    Layer& layer = layers_.emplace_back(MoeMlp(config.moe, i));
    if (decoder.attends[size_t(i)]) {
      layer.attention.emplace(config.attention, i, state.layers.size());
      state.layers.push_back(layer.attention->state());
      layer.attention->AddCost(&state);
    } else {
      layer.lightning.emplace(config.lightning, i, state.layers.size());
      state.layers.push_back(layer.lightning->state());
      layer.lightning->AddCost(&state);
    }
  }
}

void MiniMax::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  rotary_.Declare(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
      plan->AddNorm(plan->Layer(i, hf, gguf), config_.decoder.dim, ValueForm::kPlain, out);
    };
    norm("input_layernorm.weight", "attn_norm.weight", &layer.mixer_norm);
    if (layer.attention) layer.attention->Declare(plan);
    if (layer.lightning) layer.lightning->Declare(plan);
    norm("post_attention_layernorm.weight", "ffn_norm.weight", &layer.mlp_norm);
    layer.moe.Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void MiniMax::CompleteWeights() {
  rotary_.CompleteWeights();
  for (Layer& layer : layers_) {
    if (layer.lightning) layer.lightning->CompleteWeights();
  }
}

std::string MiniMax::DescribeNumerics() const {
  std::string text = config_.decoder.rope.Describe() + DescribeRouting(config_.moe);
  for (const MiniMaxFactors* factors : {&config_.full, &config_.linear, &config_.mlp}) {
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), " factors %.9g %.9g", double(factors->alpha),
                  double(factors->beta));
    text += numbers;
  }
  return text;
}

void MiniMax::DescribeGguf(GgufWriter* out) const {
  constexpr const char* kArchitecture = "minimax-01";
  const std::string prefix = std::string(kArchitecture) + ".";
  DecoderConfig decoder = config_.decoder;
  decoder.attends.clear();  // llama.cpp wants one number of K/V heads, and the layers apart
  DescribeDecoder(decoder, kArchitecture, out);
  DescribeMoe(config_.moe, kArchitecture, out);
  std::vector<uint8_t> recurrent;
  for (const bool attends : config_.decoder.attends) recurrent.push_back(attends ? 0 : 1);
  out->PutArray<bool>(prefix + "attention.recurrent_layers",
                      {reinterpret_cast<const bool*>(recurrent.data()), recurrent.size()});
  out->Put<float>(prefix + "residual_scale", config_.full.alpha);
  // Not known to llama.cpp, whose models have one factor of the stream and none of the blocks.
  const auto put = [&](const char* key, float value, float known) {
    if (value != known) out->Put<float>(prefix + key, value);
  };
  put("residual_scale_linear", config_.linear.alpha, config_.full.alpha);
  put("residual_scale_mlp", config_.mlp.alpha, config_.full.alpha);
  put("block_scale", config_.full.beta, 1);
  put("block_scale_linear", config_.linear.beta, 1);
  put("block_scale_mlp", config_.mlp.beta, 1);
}

void MiniMax::RunLayer(const Step& step, const Layer& layer, const RopeTable& rope, const Rows& x,
                       const Rows& h, const Rows& y) const {
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  RmsNorm(context, x, layer.mixer_norm.data(), 1, eps, h);
  if (layer.attention) {
    layer.attention->Forward(step, rope, h, y);
  } else {
    layer.lightning->Forward(step, h, y);
  }
  Continue(context, layer.attention ? config_.full : config_.linear, h, y, x);
  RmsNorm(context, x, layer.mlp_norm.data(), 1, eps, h);
  layer.moe.Forward(step, h, y);
  Continue(context, config_.mlp, h, y, x);
}

void MiniMax::Run(const Step& home, const StepResults& results) const {
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  RopeTable rope = rotary_.Table(home);
  Rows h = home.MakeRows(config_.decoder.dim);
  Rows y = home.MakeRows(config_.decoder.dim);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (const Step& next = home.OfLayer(int(i)); &next != step) {
      x = next.Bring(*step, x);
      rope = next.Bring(*step, rope);
      h = next.MakeRows(config_.decoder.dim);
      y = next.MakeRows(config_.decoder.dim);
      step = &next;
    }
    RunLayer(*step, layers_[i], rope, x, h, y);
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

}  // namespace reprise
