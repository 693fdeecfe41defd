// SPDX-License-Identifier: Apache-2.0
#include "model/families/gemma4/attention.h"

#include "kernels/activation_ops.h"
#include "kernels/joint_ops.h"

namespace reprise {

Gemma4Attention::Gemma4Attention(const Gemma4Config& config, int layer, size_t layer_state,
                                 DType kv)
    : layer_(layer),
      layer_state_(layer_state),
      heads_(config.heads(layer)),
      dim_(config.decoder.dim),
      q_heads_(config.decoder.q_heads),
      window_(config.decoder.windows[size_t(layer)]),
      shares_(config.shares(layer)),
      value_is_key_(config.value_is_key && !config.decoder.slides[size_t(layer)]),
      whole_pictures_(config.whole_pictures && config.decoder.slides[size_t(layer)]),
      eps_(config.decoder.eps),
      residual_gain_(config.decoder.residual_gain()),
      kv_{heads_.kv_heads, heads_.head_dim, heads_.head_dim, kv} {}

LayerState Gemma4Attention::state() const {
  const std::vector<int64_t> shape = {heads_.kv_heads, heads_.head_dim};
  return {layer_,
          window_ > 0 ? StateKind::kWindowKv : StateKind::kFullKv,
          window_,
          {{"k", shape, kv_.dtype}, {"v", shape, kv_.dtype}}};
}

void Gemma4Attention::AddCost(StateSpec* state) const {
  const double per_position = 2.0 * double(q_width());
  if (window_ > 0) {
    state->token_cost += per_position * window_;
  } else {
    state->token_cost_per_position += per_position;
  }
}

void Gemma4Attention::Declare(TensorPlan* plan) {
  const auto matrix = [&](const char* hf, const char* gguf, int64_t rows, int64_t cols,
                          Matrix* out) -> PlannedTensor& {
    return plan->AddMatrix(plan->Layer(layer_, std::string("self_attn.") + hf, gguf), rows, cols,
                           out);
  };
  const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
    plan->AddNorm(plan->Layer(layer_, hf, gguf), heads_.head_dim, ValueForm::kPlain, out);
  };
  matrix("q_proj.weight", "attn_q.weight", q_width(), dim_, &q_);
  norm("self_attn.q_norm.weight", "attn_q_norm.weight", &q_norm_);
  if (!shares_) {
    matrix("k_proj.weight", "attn_k.weight", kv_width(), dim_, &k_);
    norm("self_attn.k_norm.weight", "attn_k_norm.weight", &k_norm_);
    if (!value_is_key_) matrix("v_proj.weight", "attn_v.weight", kv_width(), dim_, &v_);
    plan->AddDerived(&ones_, layer_);
  }
  matrix("o_proj.weight", "attn_output.weight", dim_, q_width(), &o_).init.deviation *=
      residual_gain_;
}

void Gemma4Attention::CompleteWeights() {
  if (!shares_) ones_.values().assign(size_t(heads_.head_dim), 1.0f);
}

void Gemma4Attention::Store(const Step& step, const RopeTable& rope, const ConstRows& x,
                            const Rows& q) const {
  const OpContext& context = step.context();
  const Rows both = step.MakeRows(2 * kv_width());
  const Rows k = Columns(both, 0, kv_width());
  const Rows v = Columns(both, kv_width(), kv_width());
  const Projection projections[] = {{&q_, q}, {&k_, k}, {&v_, v}};
  Project(context, x, std::span(projections).first(value_is_key_ ? 2 : 3));
  // Before k is normed.
  RmsNorm(context, value_is_key_ ? k : v, ones_.data(), heads_.kv_heads, eps_, v);
  HeadInputs inputs;
  inputs.q_heads = q_heads_;
  inputs.eps = eps_;
  inputs.q_norm = q_norm_.data();
  inputs.k_norm = k_norm_.data();
  inputs.rope = rope;
  StoreHeads(context, step.layout(), step.Kv(layer_state_), kv_, inputs, q, k, v);
}

void Gemma4Attention::Query(const Step& step, const RopeTable& rope, const ConstRows& x,
                            const Rows& q) const {
  const OpContext& context = step.context();
  const Projection projection[] = {{&q_, q}};
  Project(context, x, projection);
  RmsNorm(context, q, q_norm_.data(), q_heads_, eps_, q);
  Rope(context, rope, q_heads_, q);
}

void Gemma4Attention::Forward(const Step& step, const Step& there, const RopeTable& rope,
                              const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows q = step.MakeRows(q_width());
  if (shares_) {
    Query(step, rope, x, q);
  } else {
    Store(step, rope, x, q);
  }
  AttentionParams params;
  params.q_heads = q_heads_;
  params.window = window_;
  if (whole_pictures_) params.ends = step.picture_ends();
  // Once for each state: sums over layers would depend on how tokens come into steps.
  if (window_ == 0 && !shares_) step.Watch(layer_state_, kv_, params, q);
  const ScratchScope there_scope(*there.context().scratch);
  const bool here = &there == &step;
  const Rows attended = there.MakeRows(q_width());
  Attend(there.context(), there.layout(), there.Kv(layer_state_), kv_, params,
         here ? q : there.Bring(step, q), attended);
  const Projection output[] = {{&o_, out}};
  Project(context, here ? attended : step.Bring(there, attended), output);
}

}  // namespace reprise
