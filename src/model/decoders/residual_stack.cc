// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/residual_stack.h"

#include <utility>

#include "base/check.h"
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
  if (mtp_) mtp_->Declare(plan);
  vocabulary_.DeclareHead(plan);
}

void ResidualStack::CompleteWeights() {
  if (rotary_) rotary_->CompleteWeights();
  for (Block& block : blocks_) {
    for (const auto& part : block.parts) part->CompleteWeights();
  }
  if (mtp_) mtp_->CompleteWeights();
}

void ResidualStack::AddMtp(MtpShape shape) {
  const size_t layer_state = card_.state.layers.size();
  mtp_ = std::make_unique<MtpBlock>(std::move(shape), config_.layer_count, layer_state);
  card_.state.layers.push_back(mtp_->kv());
  card_.state.layers.push_back(mtp_->hidden());
  card_.mtp_state = mtp_->hidden_state();
}

// The rows of a step on one device.
struct ResidualStack::Lane {
  Rows x, h, y, further;
  RopeTable rope;
};

void ResidualStack::Run(const Step& home, const StepResults& results) const {
  const auto make_lane = [&](const Step& step, const Rows& x, const RopeTable& rope) {
    return Lane{x, step.MakeRows(config_.dim), step.MakeRows(config_.dim),
                step.MakeRows(config_.dim), rope};
  };
  const Step* step = &home;
  const Rows embedded = vocabulary_.Embed(home);
  Lane lane = make_lane(home, embedded, rotary_ ? rotary_->Table(home) : RopeTable{});
  const auto go_to = [&](const Step& next) {
    if (&next == step) return false;
    lane = make_lane(next, next.Bring(*step, lane.x), next.Bring(*step, lane.rope));
    step = &next;
    return true;
  };
  go_to(home.OfLayer(blocks_.front().layer));
  RmsNorm(step->context(), lane.x, blocks_.front().norm.data(), 1, config_.eps, lane.h);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const OpContext& context = step->context();
    const Block& block = blocks_[b];
    block.parts[0]->Forward(*step, lane.rope, lane.h, lane.y);
    for (size_t i = 1; i < block.parts.size(); ++i) {
      block.parts[i]->Forward(*step, lane.rope, lane.h, lane.further);
      reprise::Add(context, lane.y, lane.further, lane.y);
    }
    if (traits_.residual_scale != 1) Scale(context, lane.y, traits_.residual_scale, lane.y);
    const Block* const next = b + 1 < blocks_.size() ? &blocks_[b + 1] : nullptr;
    const Step& target = next != nullptr ? home.OfLayer(next->layer) : home;
    if (next != nullptr && &target == step) {
      AddRmsNorm(context, lane.x, lane.y, next->norm.data(), config_.eps, lane.h);
      continue;
    }
    reprise::Add(context, lane.x, lane.y, lane.x);
    if (next == nullptr) break;
    go_to(target);
    RmsNorm(step->context(), lane.x, next->norm.data(), 1, config_.eps, lane.h);
  }
  const Rows last = step == &home ? lane.x : home.Bring(*step, lane.x);
  if (mtp_) {
    CHECK(step == &home);
    return mtp_->Finish(home, vocabulary_, lane.rope, last, results);
  }
  vocabulary_.Logits(home, last, results);
}

void ResidualStack::Predict(const Step& step, const ConstRows& before,
                            const StepResults& results) const {
  CHECK(mtp_ != nullptr && results.hidden.rows == step.rows());
  mtp_->Guess(step, vocabulary_, rotary_ ? rotary_->Table(step) : RopeTable{}, before, results);
}

}  // namespace reprise
