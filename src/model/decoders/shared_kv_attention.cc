// SPDX-License-Identifier: Apache-2.0
#include "model/decoders/shared_kv_attention.h"

#include "kernels/activation_ops.h"
#include "kernels/joint_ops.h"

namespace reprise {

SharedKvAttention::SharedKvAttention(const SharedKvShape& shape, int layer, size_t layer_state)
    : shape_(shape),
      layer_(layer),
      layer_state_(layer_state),
      kv_{shape.kv_heads, shape.head_dim, shape.head_dim, shape.kv} {}

LayerState SharedKvAttention::state() const {
  const std::vector<int64_t> shape = {shape_.kv_heads, shape_.head_dim};
  return {layer_,
          shape_.window > 0 ? StateKind::kWindowKv : StateKind::kFullKv,
          shape_.window,
          {{"k", shape, kv_.dtype}, {"v", shape, kv_.dtype}}};
}

void SharedKvAttention::AddCost(StateSpec* state) const {
  const double per_position = 2.0 * double(q_width());
  if (shape_.window > 0) {
    state->token_cost += per_position * shape_.window;
  } else {
    state->token_cost_per_position += per_position;
  }
}

void SharedKvAttention::Declare(TensorPlan* plan) {
  const auto matrix = [&](const char* hf, const char* gguf, int64_t rows, int64_t cols,
                          Matrix* out) -> PlannedTensor& {
    return plan->AddMatrix(plan->Layer(layer_, std::string("self_attn.") + hf, gguf), rows, cols,
                           out);
  };
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Layer(layer_, hf, gguf), shape_.head_dim, ValueForm::kPlain, out);
  };
  matrix("q_proj.weight", "attn_q.weight", q_width(), shape_.dim, &q_);
  norm("self_attn.q_norm.weight", "attn_q_norm.weight", &q_norm_);
  if (!shape_.shares) {
    matrix("k_proj.weight", "attn_k.weight", kv_width(), shape_.dim, &k_);
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &k_norm_);
    if (!shape_.value_is_key) matrix("v_proj.weight", "attn_v.weight", kv_width(), shape_.dim, &v_);
    plan->AddDerived(&ones_, layer_);
  }
  matrix("o_proj.weight", "attn_output.weight", shape_.dim, q_width(), &o_).init.deviation *=
      shape_.residual_gain;
}

void SharedKvAttention::CompleteWeights() {
  if (!shape_.shares) ones_.values().assign(size_t(shape_.head_dim), 1.0f);
}

void SharedKvAttention::Store(const Step& step, const RopeTable& rope, const ConstRows& x,
                              const Rows& q) const {
  const OpContext& context = step.context();
  const Rows both = step.MakeRows(2 * kv_width());
  const Rows k = Columns(both, 0, kv_width());
  const Rows v = Columns(both, kv_width(), kv_width());
  const Projection projections[] = {{&q_, q}, {&k_, k}, {&v_, v}};
  Project(context, x, std::span(projections).first(shape_.value_is_key ? 2 : 3));
  // Before k is normed.
  RmsNorm(context, shape_.value_is_key ? k : v, ones_.data(), shape_.kv_heads, shape_.eps, v);
  HeadInputs inputs;
  inputs.q_heads = shape_.q_heads;
  inputs.eps = shape_.eps;
  inputs.q_norm = q_norm_.data();
  inputs.k_norm = k_norm_.data();
  inputs.rope = rope;
  StoreHeads(context, step.layout(), step.Kv(layer_state_), kv_, inputs, q, k, v);
}

void SharedKvAttention::Query(const Step& step, const RopeTable& rope, const ConstRows& x,
                              const Rows& q) const {
  const OpContext& context = step.context();
  const Projection projection[] = {{&q_, q}};
  Project(context, x, projection);
  RmsNorm(context, q, q_norm_.data(), shape_.q_heads, shape_.eps, q);
  Rope(context, rope, shape_.q_heads, q);
}

void SharedKvAttention::Forward(const Step& step, const Step& there, const RopeTable& rope,
                                const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows q = step.MakeRows(q_width());
  if (shape_.shares) {
    Query(step, rope, x, q);
  } else {
    Store(step, rope, x, q);
  }
  AttentionParams params;
  params.q_heads = shape_.q_heads;
  params.window = shape_.window;
  if (shape_.whole_pictures) params.ends = step.picture_ends();
  // Once for each state: sums over layers would depend on how tokens come into steps.
  if (shape_.window == 0 && !shape_.shares) step.Watch(layer_state_, kv_, params, q);
  const ScratchScope there_scope(*there.context().scratch);
  const bool here = &there == &step;
  const Rows attended = there.MakeRows(q_width());
  Attend(there.context(), there.layout(), there.Kv(layer_state_), kv_, params,
         here ? q : there.Bring(step, q), attended);
  const Projection output[] = {{&o_, out}};
  Project(context, here ? attended : step.Bring(there, attended), output);
}

}  // namespace reprise
