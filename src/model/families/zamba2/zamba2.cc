// SPDX-License-Identifier: Apache-2.0
#include "model/families/zamba2/zamba2.h"

#include <utility>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

Vocabulary::Shape MakeVocabularyShape(const DecoderConfig& decoder) {
  Vocabulary::Shape shape;
  shape.size = decoder.vocab_size;
  shape.dim = decoder.dim;
  shape.tied = decoder.tied;
  shape.eps = decoder.eps;
  shape.hf_norm = "final_layernorm";
  return shape;
}

}  // namespace

Zamba2Model::Zamba2Model(const Zamba2Config& config, DType kv)
    : config_(config),
      vocabulary_(MakeVocabularyShape(config.decoder)),
      rotary_(config.decoder.rope) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  if (config.rope) card_.rope_regime = decoder.rope.Regime();
  StateSpec& state = card_.state;
  for (int i = 0; i < config.blocks; ++i) {
    blocks_.push_back(std::make_unique<Zamba2Block>(config, config.HomeOf(i), kv));
  }
  layers_.reserve(size_t(decoder.layer_count));
  int uses = 0;
  for (int i = 0; i < decoder.layer_count; ++i) {
    const bool uses_block = decoder.attends[size_t(i)];
    Mamba2Shape shape = config.mamba;
    shape.hf_module = uses_block ? "mamba_decoder.mamba." : "mamba.";
    Layer& layer = layers_.emplace_back(Mamba2(shape, i, state.layers.size()));
    state.layers.push_back(layer.mamba.state());
    layer.mamba.AddCost(&state);
    if (!uses_block) continue;
    layer.use = uses++;
    Zamba2Block& block = *blocks_[size_t(layer.use % config.blocks)];
    block.AddUse(layer.use, state.layers.size());
    state.layers.push_back(block.state());
    block.AddCost(&state);
  }
}

void Zamba2Model::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  if (config_.rope) rotary_.Declare(plan);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    if (layer.use >= 0) {
      if (layer.use < config_.blocks) blocks_[size_t(layer.use)]->Declare(plan);
      plan->AddMatrix(plan->Layer(i, "linear.weight", "shared_proj.weight"), config_.decoder.dim,
                      config_.decoder.dim, &layer.projection);
    }
    const char* norm =
        layer.use >= 0 ? "mamba_decoder.input_layernorm.weight" : "input_layernorm.weight";
    plan->AddNorm(plan->Layer(i, norm, "attn_norm.weight"), config_.decoder.dim, ValueForm::kPlain,
                  &layer.norm);
    layer.mamba.Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void Zamba2Model::CompleteWeights() {
  if (config_.rope) rotary_.CompleteWeights();
  for (Layer& layer : layers_) layer.mamba.CompleteWeights();
}

std::string Zamba2Model::DescribeNumerics() const {
  std::string text = reprise::DescribeNumerics(config_.mamba) + " blocks " +
                     std::to_string(config_.blocks) + " at";
  for (const int layer : config_.uses()) text += " " + std::to_string(layer);
  if (config_.rope) text += " " + config_.decoder.rope.Describe();
  return text;
}

Zamba2Model::Lane Zamba2Model::MakeLane(const Step& step, const Rows& x, const Rows& first,
                                        const RopeTable& rope) const {
  const int64_t dim = config_.decoder.dim;
  return {&step, x, first, step.MakeRows(dim), step.MakeRows(dim), rope};
}

Zamba2Model::Lane Zamba2Model::Moved(const Lane& lane, const Step& to) const {
  if (&to == lane.step) return lane;
  const Step& from = *lane.step;
  return MakeLane(to, to.Bring(from, lane.x), to.Bring(from, lane.first),
                  config_.rope ? to.Bring(from, lane.rope) : RopeTable{});
}

void Zamba2Model::RunBlock(const Step& home, const Lane& lane, const Layer& layer) const {
  const Zamba2Block& block = *blocks_[size_t(layer.use % config_.blocks)];
  const Lane there = Moved(lane, home.OfLayer(block.layer()));
  block.Forward(*there.step, there.rope, layer.use, there.x, there.first, there.h);
  const Rows found = there.step == lane.step ? there.h : lane.step->Bring(*there.step, there.h);
  const Projection projection[] = {{&layer.projection, lane.y}};
  Project(lane.step->context(), found, projection);
}

void Zamba2Model::Run(const Step& home, const StepResults& results) const {
  const Rows embedded = vocabulary_.Embed(home);
  const Rows x = home.MakeRows(config_.decoder.dim);
  CopyHeads(home.context(), 1, x.cols, embedded, 0, x, 0);
  Lane lane = MakeLane(home, x, embedded, config_.rope ? rotary_.Table(home) : RopeTable{});
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    lane = Moved(lane, home.OfLayer(int(i)));
    const OpContext& context = lane.step->context();
    const float eps = config_.decoder.eps;
    if (layer.use >= 0) {
      const ScratchScope scope(*context.scratch);
      RunBlock(home, lane, layer);
      Add(context, lane.x, lane.y, lane.h);
      RmsNorm(context, lane.h, layer.norm.data(), 1, eps, lane.h);
    } else {
      RmsNorm(context, lane.x, layer.norm.data(), 1, eps, lane.h);
    }
    layer.mamba.Forward(*lane.step, lane.h, lane.y);
    Add(context, lane.x, lane.y, lane.x);
  }
  vocabulary_.Logits(home, lane.step == &home ? lane.x : home.Bring(*lane.step, lane.x), results);
}

}  // namespace reprise
