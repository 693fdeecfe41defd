// SPDX-License-Identifier: Apache-2.0
#include "model/layers/vocabulary.h"

#include <cmath>
#include <string>

#include "kernels/activation_ops.h"

namespace reprise {

void Vocabulary::DeclareEmbedding(TensorPlan* plan) {
  PlannedTensor& table = plan->AddMatrix(plan->Global(shape_.hf_embedding, "token_embd.weight"),
                                         shape_.size, shape_.dim, &embedding_);
  table.role = shape_.tied ? TensorRole::kEmbeddingAndHead : TensorRole::kEmbedding;
  table.init.deviation = 1 / shape_.embedding_scale;
  if (shape_.scales_in_gguf) table.gguf_factors = {{shape_.size, shape_.embedding_scale}};
}

void Vocabulary::DeclareHead(TensorPlan* plan) {
  const std::string hf(shape_.hf_norm);
  const std::string gguf(shape_.gguf_norm);
  PlannedTensor& norm = plan->AddNorm(plan->Global(hf + ".weight", gguf + ".weight"), shape_.dim,
                                      shape_.norm_form, &norm_);
  if (shape_.tied) {
    // A random table is as large as a stream needs it, so the norm makes up for it at the head; its
    // signs keep a token from predicting itself.
    norm.init = {shape_.norm_form == ValueForm::kOnePlus ? -1.0f : 0.0f,
                 shape_.embedding_scale / std::sqrt(float(shape_.dim))};
  }
  if (shape_.layer_norm) {
    plan->AddVector(plan->Global(hf + ".bias", gguf + ".bias"), shape_.dim, &norm_bias_).init = {
        0, 0.1f};
  }
  if (!shape_.tied) {
    PlannedTensor& head = plan->AddMatrix(plan->Head(), shape_.size, shape_.dim, &head_);
    head.role = TensorRole::kHead;
    if (shape_.scales_in_gguf) head.gguf_factors = {{shape_.size, shape_.logit_scale}};
  }
}

Rows Vocabulary::Embed(const Step& step) const {
  const Rows x = step.MakeRows(shape_.dim);
  reprise::Embed(step.context(), embedding_, step.layout(), x);
  for (const Step::EmbeddedRows& rows : step.embedded()) AddAdapter(step, rows, x);
  if (shape_.embedding_scale != 1) Scale(step.context(), x, shape_.embedding_scale, x);
  for (const PictureRows& picture : step.batch().pictures) {
    const Rows rows{x.data + int64_t{picture.row_begin} * x.stride, picture.row_count, x.cols,
                    x.stride};
    CopyHeads(step.context(), 1, x.cols, {picture.vectors, rows.rows, rows.cols, rows.cols}, 0,
              rows, 0);
  }
  return x;
}

// The narrow product of a token is a row of the adapter's table.
void Vocabulary::AddAdapter(const Step& step, const Step::EmbeddedRows& rows, const Rows& x) {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const LowRank& product = *rows.product;
  const auto part = [&](const Rows& all) {
    return Rows{all.data + rows.row_begin * all.stride, rows.row_count, all.cols, all.stride};
  };
  const Rows all = step.MakeRows(product.down.cols());
  reprise::Embed(context, product.down, step.layout(), all);
  const Rows between = part(all), out = part(x);
  if (product.scale != 1) Scale(context, between, product.scale, between);
  const Rows added = step.MakeRows(rows.row_count, x.cols);
  const Projection up[] = {{&product.up, added}};
  OpContext plain = context;
  plain.adapters = nullptr;
  Project(plain, between, up);
  Add(context, out, added, out);
}

void Vocabulary::Logits(const Step& step, const ConstRows& x, const StepResults& results) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  if (results.hidden.rows > 0) Norm(context, x, results.hidden);
  if (results.logits.rows > 0) NormAndHead(step, x, results.logits);
  // Last: it may be one kernel with the choice of a token.
  if (!results.finite) return;
  step.JoinSpoilt();
  FiniteRows(context, step.layout(), x, results.finite);
}

void Vocabulary::Norm(const OpContext& context, const ConstRows& x, const Rows& out) const {
  if (shape_.layer_norm) {
    LayerNorm(context, x, norm_.data(), norm_bias_.data(), 1, shape_.eps, out);
  } else {
    RmsNorm(context, x, norm_.data(), 1, shape_.eps, out);
  }
}

void Vocabulary::NormAndHead(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  // They ascend: as many as there are rows are all of them, each in its place.
  const bool all = out.rows == x.rows;
  const Rows some = all ? Rows{} : step.MakeRows(out.rows, shape_.dim);
  const Rows normed = step.MakeRows(out.rows, shape_.dim);
  if (!all) GatherRows(context, x, step.layout().device.logit_rows, some);
  Norm(context, all ? x : some, normed);
  Head(step, normed, out);
}

void Vocabulary::Head(const Step& step, const ConstRows& normed, const Rows& out) const {
  const OpContext& context = step.logit_context();
  const Matrix& head = shape_.tied ? embedding_ : head_;
  if (out.cols < shape_.size) {
    ProjectFirst(context, normed, head, out);
  } else {
    const Projection output[] = {{&head, out}};
    Project(context, normed, output);
  }
  if (shape_.logit_scale != 1) Scale(context, out, shape_.logit_scale, out);
  if (shape_.softcap != 0) Softcap(context, out, shape_.softcap, out);
}

}  // namespace reprise
