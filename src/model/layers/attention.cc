// SPDX-License-Identifier: Apache-2.0
#include "model/layers/attention.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/activation_ops.h"
#include "model/config/decoder.h"

namespace reprise {
namespace {

PlannedTensor& AddBias(TensorPlan* plan, TensorPlan::Name name, int64_t size, Vector* out) {
  PlannedTensor& tensor = plan->AddVector(std::move(name), size, out);
  tensor.init = {0, 0.1f};
  return tensor;
}

}  // namespace

AttentionShape MakeAttentionShape(const DecoderConfig& config, DType kv) {
  AttentionShape shape;
  shape.dim = config.dim;
  shape.q_heads = config.q_heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.eps = config.eps;
  shape.residual_gain = config.residual_gain();
  shape.kv = kv;
  return shape;
}

LayerState Attention::state() const {
  const std::vector<int64_t> shape = {shape_.kv_heads, shape_.head_dim};
  return {layer_,
          shape_.window > 0 ? StateKind::kWindowKv : StateKind::kFullKv,
          shape_.window,
          {{"k", shape, shape_.kv}, {"v", shape, shape_.kv}}};
}

void Attention::AddCost(StateSpec* state) const {
  const double per_position = 2.0 * shape_.q_heads * shape_.head_dim;
  if (shape_.window > 0) {
    state->token_cost += per_position * shape_.window;
  } else {
    state->token_cost_per_position += per_position;
  }
}

void Attention::DeclareInputs(TensorPlan* plan) {
  const auto name = [&](const std::string& hf, const char* gguf) {
    return plan->Layer(layer_, shape_.hf + "." + hf, gguf);
  };
  const auto rotary = [&](PlannedTensor& tensor, int heads) {
    if (shape_.rotary_pairs_in_gguf) {
      tensor.head_rows = {HeadOrder::kRotary, tensor.rows == 1, 0, heads, 0, shape_.head_dim};
    }
  };
  // Heads that read one K/V head stay together.
  const Section q_heads = {shape_.kv_heads, q_width() / shape_.kv_heads};
  const Section kv_heads = {shape_.kv_heads, shape_.head_dim};
  if (shape_.fused) {
    plan->AddMatrix(name("qkv_proj.weight", "attn_qkv.weight"), q_width() + 2 * kv_width(),
                    shape_.dim, &qkv_)
        .sections = {q_heads, kv_heads, kv_heads};
    return;
  }
  PlannedTensor& q = plan->AddMatrix(name("q_proj.weight", "attn_q.weight"),
                                     q_width() * (shape_.gated ? 2 : 1), shape_.dim, &q_);
  q.sections = {q_heads};
  if (shape_.gated) {
    q.sections.push_back(q_heads);
    q.head_rows = {HeadOrder::kQueryGate, false, 0, shape_.q_heads, 0, shape_.head_dim};
  } else {
    rotary(q, shape_.q_heads);
  }
  q.gguf_factors = {{q.rows, shape_.in_scale}};
  PlannedTensor& k =
      plan->AddMatrix(name("k_proj.weight", "attn_k.weight"), kv_width(), shape_.dim, &k_);
  rotary(k, shape_.kv_heads);
  k.sections = {kv_heads};
  k.gguf_factors = {{kv_width(), shape_.in_scale * shape_.key_scale}};
  PlannedTensor& v =
      plan->AddMatrix(name("v_proj.weight", "attn_v.weight"), kv_width(), shape_.dim, &v_);
  v.sections = {kv_heads};
  v.gguf_factors = {{kv_width(), shape_.in_scale}};
  if (shape_.bias) {
    rotary(AddBias(plan, name("q_proj.bias", "attn_q.bias"), q_width(), &q_bias_), shape_.q_heads);
    rotary(AddBias(plan, name("k_proj.bias", "attn_k.bias"), kv_width(), &k_bias_),
           shape_.kv_heads);
    AddBias(plan, name("v_proj.bias", "attn_v.bias"), kv_width(), &v_bias_);
  }
}

void Attention::Declare(TensorPlan* plan) {
  const auto name = [&](const std::string& hf, const char* gguf) {
    return plan->Layer(layer_, shape_.hf + "." + hf, gguf);
  };
  DeclareInputs(plan);
  if (shape_.qk_norm) {
    plan->AddNorm(name(shape_.hf_q_norm + ".weight", "attn_q_norm.weight"),
                  shape_.whole_norm ? q_width() : shape_.head_dim, shape_.norm_form, &q_norm_);
    plan->AddNorm(name(shape_.hf_k_norm + ".weight", "attn_k_norm.weight"),
                  shape_.whole_norm ? kv_width() : shape_.head_dim, shape_.norm_form, &k_norm_);
  }
  PlannedTensor& o = plan->AddMatrix(name(shape_.hf_output + ".weight", "attn_output.weight"),
                                     shape_.dim, q_width(), &o_);
  o.init.deviation *= shape_.residual_gain;
  o.gguf_factors = {{shape_.dim, shape_.out_scale}};
  if (shape_.sinks) {
    plan->AddVector(name("sinks", "attn_sinks.weight"), shape_.q_heads, &sinks_).init = {0, 1};
  }
  if (shape_.growth.beta != 0) plan->AddDerived(&growth_, layer_);
  if (shape_.output_bias) {
    AddBias(plan, name(shape_.hf_output + ".bias", "attn_output.bias"), shape_.dim, &o_bias_);
  }
}

void Attention::CompleteWeights() {
  if (shape_.growth.beta != 0) {
    growth_.values() = GrowthFactors(shape_.growth, shape_.context_length);
  }
}

void Attention::Prepare(const OpContext& context, const RopeTable& rope, const Rows& q,
                        const Rows& k, HeadInputs* inputs) const {
  if (shape_.qk_norm && shape_.whole_norm) {
    RmsNorm(context, q, q_norm_.data(), 1, shape_.eps, q);
    RmsNorm(context, k, k_norm_.data(), 1, shape_.eps, k);
  } else if (shape_.qk_norm) {
    inputs->q_norm = q_norm_.data();
    inputs->k_norm = k_norm_.data();
  }
  if (shape_.late_norm && rope.half != 0) {
    Rope(context, rope, shape_.q_heads, q);
    Rope(context, rope, shape_.kv_heads, k);
  } else {
    inputs->rope = rope;
  }
}

void Attention::Forward(const Step& step, const RopeTable& rope, const ConstRows& x,
                        const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t gated_width = q_width() * (shape_.gated ? 2 : 1);
  const Rows all = step.MakeRows(gated_width + 2 * kv_width());
  const Rows q = Columns(all, 0, q_width());
  const Rows k = Columns(all, gated_width, kv_width());
  const Rows v = Columns(all, gated_width + kv_width(), kv_width());
  if (shape_.fused) {
    const Projection projection[] = {{&qkv_, all}};
    Project(context, x, projection);
  } else {
    const Projection projections[] = {{&q_, Columns(all, 0, gated_width), q_bias_.data()},
                                      {&k_, k, k_bias_.data()},
                                      {&v_, v, v_bias_.data()}};
    Project(context, x, projections);
  }
  HeadInputs inputs;
  inputs.q_heads = shape_.q_heads;
  inputs.eps = shape_.eps;
  Prepare(context, rope, q, k, &inputs);
  const KvShape kv_shape{shape_.kv_heads, shape_.head_dim, shape_.head_dim, shape_.kv};
  const KvPlace place = step.Kv(layer_state_);
  StoreHeads(context, step.layout(), place, kv_shape, inputs, q, k, v);
  if (growth_.size() != 0) {
    ScaleByPosition(context, step.layout(), growth_.data(), int(shape_.growth.period), q, q);
  }
  AttentionParams params;
  params.q_heads = shape_.q_heads;
  params.window = shape_.window;
  params.softcap = shape_.softcap;
  params.sinks = sinks_.data();
  if (shape_.whole_pictures) params.ends = step.picture_ends();
  params.scale = shape_.scale != 0 ? shape_.scale : 1 / std::sqrt(float(shape_.head_dim));
  params.scale *= shape_.in_scale * shape_.in_scale * shape_.key_scale;
  if (shape_.window == 0) step.Watch(layer_state_, kv_shape, params, q);
  const Rows attended = step.MakeRows(q_width());
  if (shape_.gated) {
    const Rows gate = Columns(all, q_width(), q_width());
    AttendGated(context, step.layout(), place, kv_shape, params, gate, q, attended);
  } else {
    Attend(context, step.layout(), place, kv_shape, params, q, attended);
  }
  const Projection output[] = {{&o_, out, o_bias_.data()}};
  Project(context, attended, output);
  const float scale = shape_.in_scale * shape_.out_scale;
  if (scale != 1) Scale(context, out, scale, out);
}

void Attention::Store(const Step& step, const RopeTable& rope, const ConstRows& x) const {
  CHECK(!shape_.fused && !shape_.whole_norm && !shape_.late_norm);
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows k = step.MakeRows(kv_width());
  const Rows v = step.MakeRows(kv_width());
  const Projection projections[] = {{&k_, k, k_bias_.data()}, {&v_, v, v_bias_.data()}};
  Project(context, x, projections);
  if (shape_.qk_norm) RmsNorm(context, k, k_norm_.data(), shape_.kv_heads, shape_.eps, k);
  if (rope.half != 0) Rope(context, rope, shape_.kv_heads, k);
  StoreKv(context, step.layout(), step.Kv(layer_state_),
          {shape_.kv_heads, shape_.head_dim, shape_.head_dim, shape_.kv}, k, v);
}

}  // namespace reprise
