// SPDX-License-Identifier: Apache-2.0
#include "model/families/zamba2/shared_block.h"

#include <cmath>

#include "base/check.h"
#include "kernels/activation_ops.h"
#include "kernels/joint_ops.h"

namespace reprise {

Zamba2Block::Zamba2Block(const Zamba2Config& config, int layer, DType kv)
    : config_(config),
      layer_(layer),
      kv_{config.decoder.kv_heads, config.decoder.head_dim, config.decoder.head_dim, kv} {}

void Zamba2Block::AddUse(int use, size_t layer_state) {
  Use& added = uses_.emplace_back();
  added.number = use;
  added.layer_state = layer_state;
}

LayerState Zamba2Block::state() const {
  const std::vector<int64_t> shape = {kv_.kv_heads, kv_.head_dim};
  return {layer_, StateKind::kFullKv, 0, {{"k", shape, kv_.dtype}, {"v", shape, kv_.dtype}}};
}

void Zamba2Block::AddCost(StateSpec* state) const {
  state->token_cost_per_position += 2.0 * double(q_width());
}

void Zamba2Block::Declare(TensorPlan* plan) {
  const DecoderConfig& decoder = config_.decoder;
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string("shared_transformer.") + hf, gguf);
  };
  const int64_t width = config_.input_width();
  plan->AddNorm(name("input_layernorm.weight", "shared_attn_norm.weight"), width, ValueForm::kPlain,
                &input_norm_);
  plan->AddMatrix(name("self_attn.q_proj.weight", "attn_q.weight"), q_width(), width, &q_);
  plan->AddMatrix(name("self_attn.k_proj.weight", "attn_k.weight"), kv_width(), width, &k_);
  plan->AddMatrix(name("self_attn.v_proj.weight", "attn_v.weight"), kv_width(), width, &v_);
  plan->AddMatrix(name("self_attn.o_proj.weight", "attn_output.weight"), decoder.dim, q_width(),
                  &o_);
  plan->AddNorm(name("pre_ff_layernorm.weight", "shared_ffn_norm.weight"), decoder.dim,
                ValueForm::kPlain, &mlp_norm_);
  plan->AddMatrix(name("feed_forward.gate_up_proj.weight", "ffn_up.weight"), 2 * decoder.hidden,
                  decoder.dim, &gate_up_);
  plan->AddMatrix(name("feed_forward.down_proj.weight", "ffn_down.weight"), decoder.dim,
                  decoder.hidden, &down_);
  for (Use& use : uses_) DeclareUse(plan, &use);
}

void Zamba2Block::DeclareUse(TensorPlan* plan, Use* use) {
  const std::string number = std::to_string(use->number);
  const auto add = [&](const std::string& hf, const std::string& gguf, int64_t rows, int64_t cols,
                       Pair* pair) {
    const auto name = [&](const char* part, const char* gguf_part) {
      return plan->Layer(layer_, "shared_transformer." + hf + "." + number + "." + part + ".weight",
                         gguf + "." + number + gguf_part + ".weight");
    };
    plan->AddMatrix(name("0", "_a"), config_.adapter_rank, cols, &pair->down);
    plan->AddMatrix(name("1", "_b"), rows, config_.adapter_rank, &pair->up);
  };
  const int64_t width = config_.input_width();
  if (config_.attention_adapters) {
    const char* letters[] = {"q", "k", "v"};
    for (size_t i = 0; i < 3; ++i) {
      const std::string letter = letters[i];
      add("self_attn.linear_" + letter + "_adapter_list", "attn_" + letter + "_adapter", width,
          width, &use->heads[i]);
    }
  }
  add("feed_forward.gate_up_proj_adapter_list", "ffn_up_adapter", 2 * config_.decoder.hidden,
      config_.decoder.dim, &use->gate_up);
}

void Zamba2Block::Attention(const Step& step, const RopeTable& rope, const Use& use,
                            const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Rows all = step.MakeRows(q_width() + 2 * kv_width());
  const Rows q = Columns(all, 0, q_width());
  const Rows k = Columns(all, q_width(), kv_width());
  const Rows v = Columns(all, q_width() + kv_width(), kv_width());
  const Projection projections[] = {{&q_, q}, {&k_, k}, {&v_, v}};
  Project(context, x, projections);
  if (config_.attention_adapters) {
    const ScratchScope further_scope(*context.scratch);
    const int64_t rank = config_.adapter_rank;
    const Rows thin = step.MakeRows(3 * rank);
    const Rows further = step.MakeRows(all.cols);
    const auto part = [&](size_t i) { return Columns(thin, int64_t(i) * rank, rank); };
    const Projection down[] = {{&use.heads[0].down, part(0)},
                               {&use.heads[1].down, part(1)},
                               {&use.heads[2].down, part(2)}};
    Project(context, x, down);
    for (size_t i = 0; i < 3; ++i) {
      const int64_t width = q_width();  // that of k and v, too
      const Projection up[] = {{&use.heads[i].up, Columns(further, int64_t(i) * width, width)}};
      Project(context, part(i), up);
    }
    Add(context, all, further, all);
  }
  HeadInputs inputs;
  inputs.q_heads = config_.decoder.q_heads;
  inputs.rope = rope;
  const KvPlace place = step.Kv(use.layer_state);
  StoreHeads(context, step.layout(), place, kv_, inputs, q, k, v);
  AttentionParams params;
  params.q_heads = config_.decoder.q_heads;
  params.scale = 1 / std::sqrt(float(config_.decoder.head_dim) / 2);
  step.Watch(use.layer_state, kv_, params, q);
  const Rows attended = step.MakeRows(q_width());
  Attend(context, step.layout(), place, kv_, params, q, attended);
  const Projection output[] = {{&o_, out}};
  Project(context, attended, output);
}

void Zamba2Block::FeedForward(const Step& step, const Use& use, const ConstRows& x,
                              const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const int64_t hidden = config_.decoder.hidden;
  const Rows both = step.MakeRows(2 * hidden);
  {
    const ScratchScope further_scope(*context.scratch);
    const Rows thin = step.MakeRows(config_.adapter_rank);
    const Rows further = step.MakeRows(2 * hidden);
    const Projection inputs[] = {{&gate_up_, both}, {&use.gate_up.down, thin}};
    Project(context, x, inputs);
    const Projection up[] = {{&use.gate_up.up, further}};
    Project(context, thin, up);
    Add(context, both, further, both);
  }
  const Rows gate = Columns(both, 0, hidden);
  GeGluErf(context, gate, Columns(both, hidden, hidden), gate);
  const Projection output[] = {{&down_, out}};
  Project(context, gate, output);
}

void Zamba2Block::Forward(const Step& step, const RopeTable& rope, int use, const ConstRows& x,
                          const ConstRows& first, const Rows& out) const {
  const OpContext& context = step.context();
  const ScratchScope scope(*context.scratch);
  const Use* found = nullptr;
  for (const Use& one : uses_) {
    if (one.number == use) found = &one;
  }
  CHECK(found != nullptr);
  const int64_t dim = config_.decoder.dim;
  const float eps = config_.decoder.eps;
  const Rows both = step.MakeRows(2 * dim);
  CopyHeads(context, 1, dim, x, 0, Columns(both, 0, dim), 0);
  CopyHeads(context, 1, dim, first, 0, Columns(both, dim, dim), 0);
  RmsNorm(context, both, input_norm_.data(), 1, eps, both);
  const Rows y = step.MakeRows(dim);
  Attention(step, rope, *found, both, y);
  RmsNorm(context, y, mlp_norm_.data(), 1, eps, y);
  FeedForward(step, *found, y, out);
}

}  // namespace reprise
