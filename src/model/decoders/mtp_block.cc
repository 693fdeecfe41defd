// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/mtp_block.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr int kReach = 2;  // of the convolution: the row before, and the row

}  // namespace

MtpBlock::MtpBlock(MtpShape shape, int layer, size_t layer_state)
    : shape_(std::move(shape)),
      layer_(layer),
      layer_state_(layer_state),
      attention_(shape_.attention, layer, layer_state) {
  if (shape_.moe) {
    mlp_ = std::make_unique<PartOf<MoeMlp>>(MoeMlp(*shape_.moe, layer));
  } else {
    mlp_ = std::make_unique<PartOf<GatedMlp>>(GatedMlp(shape_.mlp, layer));
  }
}

LayerState MtpBlock::hidden() const {
  return {layer_, StateKind::kRecurrent, 0, {{"conv", {kReach - 1, dim()}, DType::kF32}}};
}

void MtpBlock::Declare(TensorPlan* plan) {
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Mtp(layer_, hf, gguf), dim(), shape_.norm_form, out);
  };
  plan->BeginMtp(layer_, shape_.hf);
  const size_t first = plan->tensors().size();
  norm("pre_fc_norm_embedding.weight", "nextn.enorm.weight", &embedding_norm_);
  norm("pre_fc_norm_hidden.weight", "nextn.hnorm.weight", &hidden_norm_);
  plan->AddMatrix(plan->Mtp(layer_, "fc.weight", "nextn.eh_proj.weight"), dim(), 2 * dim(), &fc_);
  plan->AddNorm(plan->Layer(layer_, "input_layernorm.weight", "attn_norm.weight"), dim(),
                shape_.norm_form, &input_norm_);
  attention_.Declare(plan);
  plan->AddNorm(
      plan->Layer(layer_, "post_attention_layernorm.weight", "post_attention_norm.weight"), dim(),
      shape_.norm_form, &mlp_norm_);
  mlp_->Declare(plan);
  norm("norm.weight", "nextn.shared_head_norm.weight", &norm_);
  plan->AddDerived(&before_, layer_);
  plan->EndMtp(first);
}

void MtpBlock::CompleteWeights() {
  std::vector<float>& weights = before_.values();
  weights.assign(size_t(kReach * dim()), 0);
  std::fill_n(weights.begin(), dim(), 1.0f);
  mlp_->CompleteWeights();
}

void MtpBlock::Join(const Step& step, const ConstRows& embedded, const ConstRows& before,
                    const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows both = step.MakeRows(2 * dim());
  RmsNorm(context, embedded, embedding_norm_.data(), 1, shape_.eps, Columns(both, 0, dim()));
  RmsNorm(context, before, hidden_norm_.data(), 1, shape_.eps, Columns(both, dim(), dim()));
  const Projection projection[] = {{&fc_, out}};
  Project(context, both, projection);
}

void MtpBlock::Follow(const Step& step, const RopeTable& rope, const ConstRows& embedded,
                      const ConstRows& hidden) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows before = step.MakeRows(dim());
  const Rows x = step.MakeRows(dim());
  ShortConv(context, step.layout(), step.StateOffset(hidden_state(), 0), before_.data(), nullptr,
            kReach, false, hidden, before);
  Join(step, embedded, before, x);
  RmsNorm(context, x, input_norm_.data(), 1, shape_.eps, x);
  attention_.Store(step, rope, x);
}

void MtpBlock::Predict(const Step& step, const RopeTable& rope, const ConstRows& embedded,
                       const ConstRows& before, const Rows& x, const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows h = step.MakeRows(dim());
  const Rows y = step.MakeRows(dim());
  Join(step, embedded, before, x);
  RmsNorm(context, x, input_norm_.data(), 1, shape_.eps, h);
  attention_.Forward(step, rope, h, y);
  AddRmsNorm(context, x, y, mlp_norm_.data(), shape_.eps, h);
  mlp_->Forward(step, rope, h, y);
  AddRmsNorm(context, x, y, norm_.data(), shape_.eps, out);
}

}  // namespace reprise
