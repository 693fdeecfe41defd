// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/mtp_block.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr int kReach = 2;  // of the convolution: the row before, and the row

template <typename Layer>
class AttentionPart final : public MtpAttention {
 public:
  explicit AttentionPart(Layer layer) : layer_(std::move(layer)) {}
  void Declare(TensorPlan* plan) override { layer_.Declare(plan); }
  void CompleteWeights() override {
    if constexpr (requires { layer_.CompleteWeights(); }) layer_.CompleteWeights();
  }
  void Forward(const Step& step, const RopeTable& rope, const ConstRows& x,
               const Rows& out) const override {
    layer_.Forward(step, rope, x, out);
  }
  LayerState state() const override { return layer_.state(); }
  void Store(const Step& step, const RopeTable& rope, const ConstRows& x) const override {
    layer_.Store(step, rope, x);
  }

 private:
  Layer layer_;
};

std::unique_ptr<MtpAttention> MakeAttention(const MtpShape& shape, int layer, size_t layer_state) {
  if (const auto* latent = std::get_if<MlaShape>(&shape.attention)) {
    return std::make_unique<AttentionPart<MlaAttention>>(MlaAttention(*latent, layer, layer_state));
  }
  const auto& plain = std::get<AttentionShape>(shape.attention);
  return std::make_unique<AttentionPart<Attention>>(Attention(plain, layer, layer_state));
}

}  // namespace

bool ReadsMtpLayer(ConfigReader* reader) {
  if (!reader->mtp()) return false;
  const int64_t count =
      reader->Int({"num_nextn_predict_layers", "nextn_predict_layers"}, {0, 64}, 0);
  return count == 1 || reader->mtp_beside();
}

MtpBlock::MtpBlock(MtpShape shape, int layer, size_t layer_state)
    : shape_(std::move(shape)),
      layer_(layer),
      layer_state_(layer_state),
      attention_(MakeAttention(shape_, layer, layer_state)) {
  if (shape_.moe) {
    mlp_ = std::make_unique<LayerPart<MoeMlp>>(MoeMlp(*shape_.moe, layer));
  } else {
    mlp_ = std::make_unique<LayerPart<GatedMlp>>(GatedMlp(shape_.mlp, layer));
  }
}

LayerState MtpBlock::hidden() const {
  return {layer_, StateKind::kRecurrent, 0, {{"conv", {kReach - 1, dim()}, DType::kF32}}};
}

void MtpBlock::Declare(TensorPlan* plan) {
  const bool own = !shape_.hf.empty();  // names that no layer has
  const auto name = [&](const char* mtp, const char* layer, const char* gguf) {
    return own ? plan->Mtp(layer_, mtp, gguf) : plan->Layer(layer_, layer, gguf);
  };
  const auto norm = [&](const TensorPlan::Name& called, Vector* out) {
    plan->AddNorm(called, dim(), shape_.norm_form, out);
  };
  if (own) plan->BeginMtp(layer_, shape_.hf);
  const size_t first = plan->tensors().size();
  norm(name("pre_fc_norm_embedding.weight", "enorm.weight", "nextn.enorm.weight"),
       &embedding_norm_);
  norm(name("pre_fc_norm_hidden.weight", "hnorm.weight", "nextn.hnorm.weight"), &hidden_norm_);
  plan->AddMatrix(name("fc.weight", "eh_proj.weight", "nextn.eh_proj.weight"), dim(), 2 * dim(),
                  &fc_);
  norm(plan->Layer(layer_, "input_layernorm.weight", "attn_norm.weight"), &input_norm_);
  attention_->Declare(plan);
  norm(plan->Layer(layer_, "post_attention_layernorm.weight", shape_.gguf_mlp_norm), &mlp_norm_);
  mlp_->Declare(plan);
  norm(name("norm.weight", "shared_head.norm.weight", "nextn.shared_head_norm.weight"), &norm_);
  plan->AddDerived(&before_, layer_);
  plan->EndMtp(first);
}

void MtpBlock::CompleteWeights() {
  std::vector<float>& weights = before_.values();
  weights.assign(size_t(kReach * dim()), 0);
  std::fill_n(weights.begin(), dim(), 1.0f);
  attention_->CompleteWeights();
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
  attention_->Store(step, rope, x);
}

void MtpBlock::Predict(const Step& step, const RopeTable& rope, const ConstRows& embedded,
                       const ConstRows& before, const Rows& x, const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows h = step.MakeRows(dim());
  const Rows y = step.MakeRows(dim());
  Join(step, embedded, before, x);
  RmsNorm(context, x, input_norm_.data(), 1, shape_.eps, h);
  attention_->Forward(step, rope, h, y);
  AddRmsNorm(context, x, y, mlp_norm_.data(), shape_.eps, h);
  mlp_->Forward(step, rope, h, y);
  AddRmsNorm(context, x, y, norm_.data(), shape_.eps, out);
}

// The final norm of all rows is there: it is not computed again.
void MtpBlock::Finish(const Step& step, const Vocabulary& vocabulary, const RopeTable& rope,
                      const ConstRows& x, const StepResults& results) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows hidden = step.MakeRows(dim());
  vocabulary.Norm(context, x, hidden);
  Follow(step, rope, vocabulary.Embed(step), hidden);
  if (results.hidden.rows > 0) CopyHeads(context, 1, dim(), hidden, 0, results.hidden, 0);
  const int64_t count = results.logits.rows;
  if (count == hidden.rows) {
    vocabulary.Head(step, hidden, results.logits);
  } else if (count > 0) {
    const Rows some = step.MakeRows(count, dim());
    GatherRows(context, hidden, step.layout().device.logit_rows, some);
    vocabulary.Head(step, some, results.logits);
  }
  if (!results.finite) return;
  step.JoinSpoilt();
  FiniteRows(context, step.layout(), x, results.finite);
}

void MtpBlock::Guess(const Step& step, const Vocabulary& vocabulary, const RopeTable& rope,
                     const ConstRows& before, const StepResults& results) const {
  const Rows x = step.MakeRows(dim());
  Predict(step, rope, vocabulary.Embed(step), before, x, results.hidden);
  vocabulary.Head(step, results.hidden, results.logits);
  FiniteRows(step.context(), step.layout(), x, results.finite);
}

}  // namespace reprise
