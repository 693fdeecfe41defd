// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma3n/streams.h"

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

constexpr float kLeastSquare = 1e-5f;  // of a stream that is brought to another length

}  // namespace

void StreamRouter::Declare(TensorPlan* plan) {
  const int64_t count = config_->streams;
  const int64_t dim = config_->decoder.dim;
  const auto add = [&](const char* hf, const char* gguf, int64_t rows, int64_t cols, Matrix* out) {
    PlannedTensor& tensor = plan->AddMatrix(plan->Layer(layer_, hf, gguf), rows, cols, out);
    tensor.precise = tensor.decides = true;
  };
  plan->AddNorm(plan->Layer(layer_, "altup.router_norm.weight", "altup_router_norm.weight"), dim,
                ValueForm::kPlain, &norm_);
  add("altup.modality_router.weight", "altup_router.weight", count, dim, &router_);
  add("altup.prediction_coefs.weight", "altup_predict_coef.weight", count * count, count,
      &predict_);
  add("altup.correction_coefs.weight", "altup_correct_coef.weight", count, count, &correct_);
  plan->AddVector(plan->Layer(layer_, "altup.correct_output_scale", "altup_correct_scale.weight"),
                  dim, &scale_)
      .init = {1, 0.1f};
}

void StreamRouter::CompleteWeights() {
  for (float& value : norm_.values()) value /= float(config_->decoder.dim);
}

Rows StreamRouter::Route(const Step& step, const ConstRows& active) const {
  const OpContext& context = step.context();
  const Rows routed = step.MakeRows(config_->streams);
  const ScratchScope scope(*context.scratch);
  const Rows normed = step.MakeRows(active.cols);
  RmsNorm(context, active, norm_.data(), 1, config_->decoder.eps, normed);
  const Projection projection[] = {{&router_, routed}};
  Project(context, normed, projection);
  Softcap(context, routed, 1, routed);
  return routed;
}

void StreamRouter::Predict(const Step& step, const Rows& streams, const Rows& predicted) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows routed = Route(step, StreamOf(streams, config_->active, config_->decoder.dim));
  const Rows factors = step.MakeRows(int64_t{config_->streams} * config_->streams);
  const Projection projection[] = {{&predict_, factors}};
  Project(context, routed, projection);
  MixStreams(context, streams, factors, config_->streams, predicted);
}

void StreamRouter::Correct(const Step& step, const ConstRows& computed,
                           const Rows& predicted) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows routed = Route(step, computed);
  const Rows factors = step.MakeRows(config_->streams);
  const Projection projection[] = {{&correct_, factors}};
  Project(context, routed, projection);
  const Rows change = step.MakeRows(computed.cols);
  Scale(context, StreamOf(predicted, config_->active, computed.cols), -1, change);
  Add(context, computed, change, change);
  AddToStreams(context, change, factors, predicted);
}

ConstRows StreamRouter::Seen(const Step& step, const Rows& streams, const Rows& out) const {
  const Rows active = StreamOf(streams, config_->active, config_->decoder.dim);
  if (!config_->scaled_output) return active;
  Mul(step.context(), active, ConstRows(scale_.data(), active.rows, active.cols, 0), out);
  return out;
}

void StreamEnds::Declare(TensorPlan* plan) {
  const int64_t dim = config_->decoder.dim;
  plan->AddStack(plan->Global("altup_projections.{}.weight", "altup_proj.weight"),
                 config_->streams - 1, dim, dim, &divide_);
  plan->AddStack(plan->Global("altup_unembed_projections.{}.weight", "altup_unembd_proj.weight"),
                 config_->streams - 1, dim, dim, &join_);
}

void StreamEnds::Divide(const Step& step, const Rows& x, const Rows& streams) const {
  const OpContext& context = step.context();
  const int64_t dim = x.cols;
  CopyHeads(context, 1, dim, x, 0, StreamOf(streams, 0, dim), 0);
  const HeadProjection others[] = {{&divide_, Columns(streams, dim, streams.cols - dim), dim}};
  ProjectHeads(context, x, 0, others);
  for (int i = 1; i < config_->streams; ++i) {
    const Rows stream = StreamOf(streams, i, dim);
    MatchMagnitude(context, stream, x, kLeastSquare, stream);
  }
}

void StreamEnds::Join(const Step& step, const Rows& streams, const Rows& x) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const int64_t dim = x.cols;
  const Rows first = StreamOf(streams, 0, dim);
  const Rows joined = step.MakeRows(streams.cols - dim);
  const HeadProjection others[] = {{&join_, joined, dim}};
  ProjectHeads(context, Columns(streams, dim, streams.cols - dim), dim, others);
  CopyHeads(context, 1, dim, first, 0, x, 0);
  for (int i = 1; i < config_->streams; ++i) {
    const Rows stream = StreamOf(joined, i - 1, dim);
    MatchMagnitude(context, stream, first, kLeastSquare, stream);
    Add(context, x, stream, x);
  }
  Scale(context, x, 1 / float(config_->streams), x);
}

}  // namespace reprise
