// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma4/gemma4.h"

#include <cmath>
#include <cstdio>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

Vocabulary::Shape MakeVocabularyShape(const Gemma4Config& config) {
  Vocabulary::Shape shape;
  shape.size = config.decoder.vocab_size;
  shape.dim = config.decoder.dim;
  shape.tied = config.decoder.tied;
  shape.eps = config.decoder.eps;
  shape.embedding_scale = std::sqrt(float(config.decoder.dim));
  shape.softcap = config.logit_softcap;
  return shape;
}

SharedKvShape MakeAttentionShape(const Gemma4Config& config, int layer, DType kv) {
  const bool slides = config.decoder.slides[size_t(layer)];
  SharedKvShape shape;
  shape.dim = config.decoder.dim;
  shape.q_heads = config.decoder.q_heads;
  shape.kv_heads = config.heads(layer).kv_heads;
  shape.head_dim = config.heads(layer).head_dim;
  shape.window = config.decoder.windows[size_t(layer)];
  shape.shares = config.shares(layer);
  shape.value_is_key = config.value_is_key && !slides;
  shape.whole_pictures = config.whole_pictures && slides;
  shape.eps = config.decoder.eps;
  shape.residual_gain = config.decoder.residual_gain();
  shape.kv = kv;
  return shape;
}

MlpShape MakeMlpShape(const Gemma4Config& config, int layer) {
  MlpShape shape;
  shape.dim = config.decoder.dim;
  shape.hidden = config.hidden[size_t(layer)];
  shape.activation = MlpActivation::kGeGlu;
  shape.residual_gain = config.decoder.residual_gain();
  return shape;
}

}  // namespace

Gemma4Model::Gemma4Model(const Gemma4Config& config, DType kv)
    : config_(config),
      vocabulary_(MakeVocabularyShape(config)),
      rotary_(config.all.rope),
      window_rotary_(config.window.rope) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  card_.whole_pictures = config.whole_pictures;
  std::vector<size_t> states;  // of each layer
  for (int i = 0; i < decoder.layer_count; ++i) {
    const bool shares = config.shares(i);
    states.push_back(shares ? states[size_t(config.ProducerOf(i))] : card_.state.layers.size());
    Layer& layer = layers_.emplace_back(
        Layer{SharedKvAttention(MakeAttentionShape(config, i, kv), i, states.back()),
              GatedMlp(MakeMlpShape(config, i), i)});
    if (!shares) card_.state.layers.push_back(layer.attention.state());
    layer.attention.AddCost(&card_.state);
    if (config.moe) layer.moe.emplace(*config.moe, i);
  }
}

void Gemma4Model::DeclareTensors(TensorPlan* plan) {
  const int64_t all = config_.layer_dim * config_.decoder.layer_count;
  vocabulary_.DeclareEmbedding(plan);
  if (all != 0) {
    PlannedTensor& table = plan->AddMatrix(
        plan->Global("embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
        config_.decoder.vocab_size, all, &layer_embedding_);
    table.role = TensorRole::kEmbedding;
    table.init.deviation = 1 / std::sqrt(float(config_.layer_dim));
    plan->AddMatrix(
        plan->Global("per_layer_model_projection.weight", "per_layer_model_proj.weight"), all,
        config_.decoder.dim, &layer_projection_);
    plan->AddNorm(plan->Global("per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
                  config_.layer_dim, ValueForm::kPlain, &layer_norm_);
  }
  rotary_.Declare(plan);
  window_rotary_.DeclareAngles(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) DeclareLayer(plan, i);
  vocabulary_.DeclareHead(plan);
}

void Gemma4Model::DeclareLayer(TensorPlan* plan, int index) {
  Layer& layer = layers_[size_t(index)];
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Layer(index, hf, gguf), config_.decoder.dim, ValueForm::kPlain, out);
  };
  norm("input_layernorm.weight", "attn_norm.weight", &layer.attention_norm);
  layer.attention.Declare(plan);
  norm("post_attention_layernorm.weight", "post_attention_norm.weight", &layer.attention_post_norm);
  norm("pre_feedforward_layernorm.weight", "ffn_norm.weight", &layer.mlp_norm);
  layer.mlp.Declare(plan);
  if (layer.moe) DeclareExperts(plan, index);
  norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &layer.mlp_post_norm);
  if (config_.layer_dim != 0) {
    plan->AddMatrix(plan->Layer(index, "per_layer_input_gate.weight", "inp_gate.weight"),
                    config_.layer_dim, config_.decoder.dim, &layer.gate);
    plan->AddMatrix(plan->Layer(index, "per_layer_projection.weight", "proj.weight"),
                    config_.decoder.dim, config_.layer_dim, &layer.projection)
        .init.deviation *= config_.decoder.residual_gain();
    norm("post_per_layer_input_norm.weight", "post_norm.weight", &layer.layer_post_norm);
  }
  plan->AddVector(plan->Layer(index, "layer_scalar", "layer_output_scale.weight"), 1, &layer.scale)
      .init = {0.9f, 0.05f};
}

void Gemma4Model::DeclareExperts(TensorPlan* plan, int index) {
  Layer& layer = layers_[size_t(index)];
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Layer(index, hf, gguf), config_.decoder.dim, ValueForm::kPlain, out);
  };
  norm("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", &layer.dense_post_norm);
  norm("router.scale", "ffn_gate_inp.scale", &layer.router_norm);
  norm("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", &layer.experts_norm);
  layer.moe->Declare(plan);
  norm("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", &layer.experts_post_norm);
}

void Gemma4Model::CompleteWeights() {
  rotary_.CompleteWeights();
  window_rotary_.CompleteWeights();
  // The router sees rms_norm(x) * scale / sqrt(dim).
  const float factor = 1 / std::sqrt(float(config_.decoder.dim));
  for (Layer& layer : layers_) {
    layer.attention.CompleteWeights();
    for (float& value : layer.router_norm.values()) value *= factor;
  }
}

std::string Gemma4Model::DescribeNumerics() const {
  std::string text =
      config_.all.rope.Describe() + " window " + config_.window.rope.Describe() + " sharing ";
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    text += std::to_string(config_.ProducerOf(i)) + " ";
  }
  if (config_.value_is_key) text += "values are keys ";
  if (config_.moe) text += DescribeRouting(*config_.moe);
  return text;
}

Rows Gemma4Model::EmbedLayers(const Step& step, const ConstRows& x) const {
  const OpContext& context = step.context();
  const int layers = config_.decoder.layer_count;
  const Rows all = step.MakeRows(config_.layer_dim * layers);
  const Projection projection[] = {{&layer_projection_, all}};
  Project(context, x, projection);
  Scale(context, all, 1 / std::sqrt(float(config_.decoder.dim)), all);
  RmsNorm(context, all, layer_norm_.data(), layers, config_.decoder.eps, all);
  const ScratchScope scope(*context.scratch);
  const Rows looked_up = step.MakeRows(config_.layer_dim * layers);
  Embed(context, layer_embedding_, step.layout(), looked_up);
  Scale(context, looked_up, std::sqrt(float(config_.layer_dim)), looked_up);
  Add(context, all, looked_up, all);
  Scale(context, all, 1 / std::sqrt(2.0f), all);
  return all;
}

// further = norm(experts(norm(x))), y = norm(y) + further.
void Gemma4Model::AddExperts(const Step& step, const Layer& layer, const Rows& x,
                             const Work& work) const {
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  RmsNorm(context, work.y, layer.dense_post_norm.data(), 1, eps, work.y);
  RmsNorm(context, x, layer.router_norm.data(), 1, eps, work.other);
  RmsNorm(context, x, layer.experts_norm.data(), 1, eps, work.h);
  layer.moe->Forward(step, work.other, work.h, work.further);
  RmsNorm(context, work.further, layer.experts_post_norm.data(), 1, eps, work.further);
  Add(context, work.y, work.further, work.y);
}

void Gemma4Model::RunLayer(const Step& home, const Step& step, int index, const RopeTable& rope,
                           const Rows& x, const Work& work) const {
  const Layer& layer = layers_[size_t(index)];
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  RmsNorm(context, x, layer.attention_norm.data(), 1, eps, work.h);
  layer.attention.Forward(step, home.OfLayer(config_.ProducerOf(index)), rope, work.h, work.y);
  RmsNorm(context, work.y, layer.attention_post_norm.data(), 1, eps, work.y);
  AddRmsNorm(context, x, work.y, layer.mlp_norm.data(), eps, work.h);
  layer.mlp.Forward(step, work.h, work.y);
  if (layer.moe) AddExperts(step, layer, x, work);
  RmsNorm(context, work.y, layer.mlp_post_norm.data(), 1, eps, work.y);
  Add(context, x, work.y, x);
  if (work.gate.cols != 0) {
    const ScratchScope scope(*context.scratch);
    const Rows gate = step.MakeRows(config_.layer_dim);
    const Projection in[] = {{&layer.gate, gate}};
    Project(context, x, in);
    GeGlu(context, gate, work.gate, gate);
    const Projection out[] = {{&layer.projection, work.y}};
    Project(context, gate, out);
    RmsNorm(context, work.y, layer.layer_post_norm.data(), 1, eps, work.y);
    Add(context, x, work.y, x);
  }
  Scale(context, x, layer.scale[0], x);
}

Gemma4Model::Work Gemma4Model::MakeWork(const Step& step) const {
  const int64_t dim = config_.decoder.dim;
  Work work{step.MakeRows(dim), step.MakeRows(dim), {}, {}, {}};
  if (config_.moe) work.further = step.MakeRows(dim), work.other = step.MakeRows(dim);
  return work;
}

void Gemma4Model::Run(const Step& home, const StepResults& results) const {
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  RopeTable rope = rotary_.Table(home);
  RopeTable window_rope = window_rotary_.Table(home);
  Rows inputs = config_.layer_dim != 0 ? EmbedLayers(home, x) : Rows{};
  Work work = MakeWork(home);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    if (const Step& next = home.OfLayer(i); &next != step) {
      x = next.Bring(*step, x);
      rope = next.Bring(*step, rope);
      window_rope = next.Bring(*step, window_rope);
      if (config_.layer_dim != 0) inputs = next.Bring(*step, inputs);
      work = MakeWork(next);
      step = &next;
    }
    if (config_.layer_dim != 0) {
      work.gate = Columns(inputs, int64_t{i} * config_.layer_dim, config_.layer_dim);
    }
    RunLayer(home, *step, i, config_.decoder.slides[size_t(i)] ? window_rope : rope, x, work);
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

}  // namespace reprise
