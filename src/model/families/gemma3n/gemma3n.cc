// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma3n/gemma3n.h"

#include <cmath>
#include <cstdio>
#include <utility>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

Vocabulary::Shape MakeVocabularyShape(const Gemma3nConfig& config) {
  Vocabulary::Shape shape;
  shape.size = config.decoder.vocab_size;
  shape.dim = config.decoder.dim;
  shape.tied = config.decoder.tied;
  shape.eps = config.decoder.eps;
  shape.embedding_scale = std::sqrt(float(config.decoder.dim));
  shape.softcap = config.logit_softcap;
  return shape;
}

SharedKvShape MakeAttentionShape(const Gemma3nConfig& config, int layer, DType kv) {
  SharedKvShape shape;
  shape.dim = config.decoder.dim;
  shape.q_heads = config.decoder.q_heads;
  shape.kv_heads = config.decoder.kv_heads;
  shape.head_dim = config.decoder.head_dim;
  shape.window = config.decoder.windows[size_t(layer)];
  shape.shares = config.shares(layer);
  shape.eps = config.decoder.eps;
  shape.residual_gain = config.decoder.residual_gain();
  shape.kv = kv;
  return shape;
}

MlpShape MakeMlpShape(const Gemma3nConfig& config, int layer) {
  MlpShape shape;
  shape.dim = config.decoder.dim;
  shape.hidden = config.hidden[size_t(layer)];
  shape.activation = MlpActivation::kGeGlu;
  shape.cut = config.cuts[size_t(layer)];
  shape.residual_gain = config.decoder.residual_gain();
  return shape;
}

}  // namespace

Gemma3nModel::Gemma3nModel(const Gemma3nConfig& config, DType kv)
    : config_(config),
      vocabulary_(MakeVocabularyShape(config)),
      ends_(config_),
      rotary_(config.decoder.rope),
      window_rotary_(config.window_rope) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  card_.rope_regime = decoder.rope.Regime();
  std::vector<size_t> states;  // of each layer
  layers_.reserve(size_t(decoder.layer_count));
  for (int i = 0; i < decoder.layer_count; ++i) {
    const bool shares = config.shares(i);
    states.push_back(shares ? states[size_t(config.ProducerOf(i))] : card_.state.layers.size());
    Layer& layer = layers_.emplace_back(
        Layer{SharedKvAttention(MakeAttentionShape(config, i, kv), i, states.back()),
              GatedMlp(MakeMlpShape(config, i), i), StreamRouter(config_, i)});
    if (!shares) card_.state.layers.push_back(layer.attention.state());
    layer.attention.AddCost(&card_.state);
  }
}

void Gemma3nModel::DeclareTensors(TensorPlan* plan) {
  const int64_t all = config_.layer_dim * config_.decoder.layer_count;
  vocabulary_.DeclareEmbedding(plan);
  PlannedTensor& table =
      plan->AddMatrix(plan->Global("embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
                      config_.layer_tokens, all, &layer_embedding_);
  table.role = TensorRole::kEmbedding;
  table.init.deviation = 1 / std::sqrt(float(config_.layer_dim));
  plan->AddMatrix(plan->Global("per_layer_model_projection.weight", "per_layer_model_proj.weight"),
                  all, config_.decoder.dim, &layer_projection_);
  plan->AddNorm(plan->Global("per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
                config_.layer_dim, ValueForm::kPlain, &layer_norm_);
  ends_.Declare(plan);
  rotary_.Declare(plan);
  window_rotary_.DeclareAngles(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) DeclareLayer(plan, i);
  vocabulary_.DeclareHead(plan);
}

void Gemma3nModel::DeclareLayer(TensorPlan* plan, int index) {
  Layer& layer = layers_[size_t(index)];
  const int64_t dim = config_.decoder.dim;
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Layer(index, hf, gguf), dim, ValueForm::kPlain, out);
  };
  const auto matrix = [&](const char* hf, const char* gguf, int64_t rows, int64_t cols,
                          Matrix* out) -> PlannedTensor& {
    return plan->AddMatrix(plan->Layer(index, hf, gguf), rows, cols, out);
  };
  layer.router.Declare(plan);
  norm("input_layernorm.weight", "attn_norm.weight", &layer.attention_norm);
  layer.attention.Declare(plan);
  norm("post_attention_layernorm.weight", "post_attention_norm.weight", &layer.attention_post_norm);
  matrix("laurel.linear_left.weight", "laurel_l.weight", config_.laurel_rank, dim,
         &layer.laurel_left);
  matrix("laurel.linear_right.weight", "laurel_r.weight", dim, config_.laurel_rank,
         &layer.laurel_right);
  norm("laurel.post_laurel_norm.weight", "laurel_post_norm.weight", &layer.laurel_norm);
  norm("pre_feedforward_layernorm.weight", "ffn_norm.weight", &layer.mlp_norm);
  layer.mlp.Declare(plan);
  norm("post_feedforward_layernorm.weight", "post_ffw_norm.weight", &layer.mlp_post_norm);
  matrix("per_layer_input_gate.weight", "inp_gate.weight", config_.layer_dim, dim, &layer.gate);
  matrix("per_layer_projection.weight", "proj.weight", dim, config_.layer_dim, &layer.projection)
      .init.deviation *= config_.decoder.residual_gain();
  norm("post_per_layer_input_norm.weight", "post_norm.weight", &layer.layer_post_norm);
}

void Gemma3nModel::CompleteWeights() {
  rotary_.CompleteWeights();
  window_rotary_.CompleteWeights();
  for (Layer& layer : layers_) {
    layer.attention.CompleteWeights();
    layer.router.CompleteWeights();
  }
}

std::string Gemma3nModel::DescribeNumerics() const {
  std::string text = config_.decoder.rope.Describe() + " window " + config_.window_rope.Describe() +
                     " streams " + std::to_string(config_.streams) + " active " +
                     std::to_string(config_.active) + (config_.scaled_output ? " scaled" : "") +
                     " sharing ";
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    char cut[48];
    std::snprintf(cut, sizeof(cut), "%d cut %.9g ", config_.ProducerOf(i),
                  double(config_.cuts[size_t(i)]));
    text += cut;
  }
  return text;
}

Rows Gemma3nModel::EmbedLayers(const Step& step, const ConstRows& x) const {
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

// lane.g = what the layer makes of the active stream of lane.predicted.
void Gemma3nModel::Compute(const Step& home, const Lane& lane, int index) const {
  const Layer& layer = layers_[size_t(index)];
  const Step& step = *lane.step;
  const OpContext& context = step.context();
  const float eps = config_.decoder.eps;
  const Rows a = StreamOf(lane.predicted, config_.active, config_.decoder.dim);
  const Rows &h = lane.h, &g = lane.g, &y = lane.y;
  RmsNorm(context, a, layer.attention_norm.data(), 1, eps, h);
  layer.attention.Forward(step, home.OfLayer(config_.ProducerOf(index)),
                          config_.decoder.slides[size_t(index)] ? lane.window_rope : lane.rope, h,
                          y);
  RmsNorm(context, y, layer.attention_post_norm.data(), 1, eps, y);
  Add(context, a, y, g);
  {
    const ScratchScope scope(*context.scratch);
    const Rows thin = step.MakeRows(config_.laurel_rank);
    const Projection left[] = {{&layer.laurel_left, thin}};
    Project(context, h, left);
    const Projection right[] = {{&layer.laurel_right, y}};
    Project(context, thin, right);
  }
  RmsNorm(context, y, layer.laurel_norm.data(), 1, eps, y);
  Add(context, h, y, y);
  Add(context, g, y, g);
  Scale(context, g, 1 / std::sqrt(2.0f), g);
  RmsNorm(context, g, layer.mlp_norm.data(), 1, eps, h);
  layer.mlp.Forward(step, h, y);
  RmsNorm(context, y, layer.mlp_post_norm.data(), 1, eps, y);
  Add(context, g, y, g);
}

void Gemma3nModel::RunLayer(const Step& home, const Lane& lane, int index) const {
  const Layer& layer = layers_[size_t(index)];
  const Step& step = *lane.step;
  const OpContext& context = step.context();
  layer.router.Predict(step, lane.streams, lane.predicted);
  Compute(home, lane, index);
  layer.router.Correct(step, lane.g, lane.predicted);
  const ScratchScope scope(*context.scratch);
  const Rows gate = step.MakeRows(config_.layer_dim);
  const Projection in[] = {{&layer.gate, gate}};
  Project(context, layer.router.Seen(step, lane.predicted, lane.h), in);
  GeGlu(context, gate, Columns(lane.inputs, int64_t{index} * config_.layer_dim, config_.layer_dim),
        gate);
  const Projection out[] = {{&layer.projection, lane.y}};
  Project(context, gate, out);
  RmsNorm(context, lane.y, layer.layer_post_norm.data(), 1, config_.decoder.eps, lane.y);
  for (int i = 1; i < config_.streams; ++i) {
    const Rows stream = StreamOf(lane.predicted, i, config_.decoder.dim);
    Add(context, stream, lane.y, stream);
  }
}

Gemma3nModel::Lane Gemma3nModel::MakeLane(const Step& step) const {
  const int64_t dim = config_.decoder.dim;
  Lane lane;
  lane.step = &step;
  lane.predicted = step.MakeRows(config_.streams * dim);
  lane.h = step.MakeRows(dim);
  lane.g = step.MakeRows(dim);
  lane.y = step.MakeRows(dim);
  return lane;
}

Gemma3nModel::Lane Gemma3nModel::Moved(const Lane& lane, const Step& to) const {
  if (&to == lane.step) return lane;
  const Step& from = *lane.step;
  Lane moved = MakeLane(to);
  moved.streams = to.Bring(from, lane.streams);
  moved.inputs = to.Bring(from, lane.inputs);
  moved.rope = to.Bring(from, lane.rope);
  moved.window_rope = to.Bring(from, lane.window_rope);
  return moved;
}

void Gemma3nModel::Run(const Step& home, const StepResults& results) const {
  const Rows x = vocabulary_.Embed(home);
  Lane lane = MakeLane(home);
  lane.streams = home.MakeRows(config_.streams * config_.decoder.dim);
  ends_.Divide(home, x, lane.streams);
  lane.inputs = EmbedLayers(home, x);
  lane.rope = rotary_.Table(home);
  lane.window_rope = window_rotary_.Table(home);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    lane = Moved(lane, home.OfLayer(i));
    RunLayer(home, lane, i);
    std::swap(lane.streams, lane.predicted);
  }
  ends_.Join(home, lane.step == &home ? lane.streams : home.Bring(*lane.step, lane.streams), x);
  vocabulary_.Logits(home, x, results);
}

}  // namespace reprise
