// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/residual_stack.h"

#include "kernels/activation_ops.h"

namespace reprise {

ResidualStack::ResidualStack(const DecoderConfig& config, const Vocabulary::Shape& vocabulary,
                             const Traits& traits)
    : config_(config), traits_(traits), vocabulary_(vocabulary) {
  card_.vocab_size = config.vocab_size;
  card_.dim = config.dim;
  card_.context_length = config.context_length;
  card_.rope_regime = config.rope.Regime();
  if (traits.rope) rotary_.emplace(config.rope);
}

void ResidualStack::AddBlock(int layer, const char* hf_norm, const char* gguf_norm,
                             const char* gguf_suffix) {
  Block& block = blocks_.emplace_back();
  block.layer = layer;
  block.hf_norm = hf_norm;
  block.gguf_norm = std::string(gguf_norm) + gguf_suffix;
}

void ResidualStack::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  if (rotary_) rotary_->Declare(plan);
  for (Block& block : blocks_) {
    plan->AddNorm(plan->Layer(block.layer, std::string(block.hf_norm) + ".weight", block.gguf_norm),
                  config_.dim, traits_.norm_form, &block.norm);
    for (const auto& part : block.parts) part->Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void ResidualStack::CompleteWeights() {
  if (rotary_) rotary_->CompleteWeights();
  for (Block& block : blocks_) {
    for (const auto& part : block.parts) part->CompleteWeights();
  }
}

void ResidualStack::Run(const Step& step, const StepResults& results) const {
  const OpContext& context = step.context();
  const Rows x = vocabulary_.Embed(step);
  RopeTable rope;
  if (rotary_) rope = rotary_->Table(step);
  const Rows h = step.MakeRows(config_.dim);
  const Rows y = step.MakeRows(config_.dim);
  const Rows further = step.MakeRows(config_.dim);
  RmsNorm(context, x, blocks_.front().norm.data(), 1, config_.eps, h);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    block.parts[0]->Forward(step, rope, h, y);
    for (size_t i = 1; i < block.parts.size(); ++i) {
      block.parts[i]->Forward(step, rope, h, further);
      reprise::Add(context, y, further, y);
    }
    if (traits_.residual_scale != 1) Scale(context, y, traits_.residual_scale, y);
    if (b + 1 == blocks_.size()) {
      reprise::Add(context, x, y, x);
    } else {
      AddRmsNorm(context, x, y, blocks_[b + 1].norm.data(), config_.eps, h);
    }
  }
  vocabulary_.Logits(step, x, results);
}

}  // namespace reprise
