// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/activation_ops.h"
#include "kernels/scan_ops.h"
#include "model/families/rwkv7/rwkv7.h"

namespace reprise::rwkv7 {
namespace {

// Of the norm over each head: fixed by the published models, whatever the width of a head.
constexpr float kHeadEps = 64e-5f;
// Added to sums of squares; the reference takes max(norm, 1e-12).
constexpr float kKeyEps = 1e-24f;
constexpr int kShifts = 6;

// One vector for every row.
ConstRows Broadcast(const Vector& vector, int64_t rows) {
  return {vector.data(), rows, int64_t(vector.size()), 0};
}

void AddLayerNorm(TensorPlan* plan, int layer, const std::string& hf, const std::string& gguf,
                  int64_t dim, Norm* norm) {
  plan->AddNorm(plan->Layer(layer, hf + ".weight", gguf + ".weight"), dim, ValueForm::kPlain,
                &norm->weight);
  plan->AddVector(plan->Layer(layer, hf + ".bias", gguf + ".bias"), dim, &norm->bias).init = {0,
                                                                                              0.1f};
}

}  // namespace

LayerState Layer::state() const {
  const int64_t dim = config_.decoder.dim;
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"time_shift", {dim}, DType::kF32},
           {"wkv", {config_.heads, config_.head_dim, config_.head_dim}, DType::kF32},
           {"channel_shift", {dim}, DType::kF32}}};
}

void Layer::DeclareLowRank(TensorPlan* plan, const char* hf, const char* gguf, int64_t rank,
                           bool bias, LowRank* out) {
  const int64_t dim = config_.decoder.dim;
  const std::string from = std::string("attn.") + hf + "_lora.lora.";
  const std::string to = std::string("time_mix_") + gguf;
  plan->AddMatrix(plan->Layer(layer_, from + "0.weight", to + "1.weight"), rank, dim, &out->down)
      .precise = true;
  plan->AddMatrix(plan->Layer(layer_, from + "2.weight", to + "2.weight"), dim, rank, &out->up)
      .precise = true;
  if (!bias) return;
  plan->AddVector(plan->Layer(layer_, from + "2.bias", to + "0.weight"), dim, &out->bias).init = {
      0, 1};
}

void Layer::DeclareTimeMixing(TensorPlan* plan) {
  const int64_t dim = config_.decoder.dim;
  const auto name = [&](const char* hf, const char* gguf) { return plan->Layer(layer_, hf, gguf); };
  const auto vector = [&](const char* hf, const char* gguf, RandomInit init, Vector* out) {
    plan->AddVector(name(hf, gguf), dim, out).init = init;
  };
  PlannedTensor& shift =
      plan->AddVector(name("attn.x_{r,w,k,v,a,g}", "time_mix_lerp_fused.weight"), dim, &shift_);
  shift.slices = kShifts;
  shift.gguf_shape = Shape{kShifts, 1, 1, dim};
  shift.init = {0.5f, 0.2f};
  DeclareLowRank(plan, "w", "w", config_.decay_rank, true, &decay_);
  DeclareLowRank(plan, "a", "a", config_.rate_rank, true, &rate_);
  // The first layer has no mixture of values; llama.cpp wants these tensors there all the same, and
  // its converter writes those of the rate.
  const bool first = layer_ == 0;
  DeclareLowRank(plan, first ? "a" : "v", "v", first ? config_.rate_rank : config_.value_rank, true,
                 &value_);
  DeclareLowRank(plan, "g", "g", config_.gate_rank, false, &gate_);
  vector("attn.k_k", "time_mix_k_k.weight", {1, 0.1f}, &key_scale_);
  vector("attn.k_a", "time_mix_k_a.weight", {1, 0.1f}, &key_rate_);
  vector("attn.r_k", "time_mix_r_k.weight", {0, 0.2f}, &bonus_);
  plan->AddMatrix(name("attn.r_proj.weight", "time_mix_receptance.weight"), dim, dim, &r_);
  plan->AddMatrix(name("attn.k_proj.weight", "time_mix_key.weight"), dim, dim, &k_);
  plan->AddMatrix(name("attn.v_proj.weight", "time_mix_value.weight"), dim, dim, &v_);
  AddLayerNorm(plan, layer_, "attn.g_norm", "time_mix_ln", dim, &head_norm_);
  plan->AddMatrix(name("attn.o_proj.weight", "time_mix_output.weight"), dim, dim, &o_)
      .init.deviation *= config_.decoder.residual_gain();
}

void Layer::Declare(TensorPlan* plan) {
  const int64_t dim = config_.decoder.dim;
  const int64_t hidden = config_.decoder.hidden;
  plan->AddDerived(&zeros_, layer_);
  zeros_.values().assign(size_t(config_.gate_rank), 0.0f);
  AddLayerNorm(plan, layer_, "attn_norm", "attn_norm", dim, &time_norm_);
  DeclareTimeMixing(plan);
  AddLayerNorm(plan, layer_, "ffn_norm", "attn_norm_2", dim, &channel_norm_);
  PlannedTensor& shift = plan->AddVector(
      plan->Layer(layer_, "ffn.x_k", "channel_mix_lerp_k.weight"), dim, &channel_shift_);
  shift.gguf_shape = Shape{1, 1, dim};
  shift.init = {0.5f, 0.2f};
  plan->AddMatrix(plan->Layer(layer_, "ffn.key.weight", "channel_mix_key.weight"), hidden, dim,
                  &channel_key_);
  plan->AddMatrix(plan->Layer(layer_, "ffn.value.weight", "channel_mix_value.weight"), dim, hidden,
                  &channel_value_)
      .init.deviation *= config_.decoder.residual_gain();
}

void Layer::ProjectTime(const Step& step, const TimeRows& x, const TimeRows& out,
                        const Rows& share) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows w = step.MakeRows(decay_.down.rows());
  const Rows a = step.MakeRows(rate_.down.rows());
  const Rows g = step.MakeRows(gate_.down.rows());
  const Rows v = step.MakeRows(value_.down.rows());
  const size_t shared = mixes_values() ? 1 : 0;
  const Projection r_in[] = {{&r_, out.r}};
  const Projection w_in[] = {{&decay_.down, w}};
  const Projection k_in[] = {{&k_, out.k}};
  const Projection v_in[] = {{&v_, out.v}, {&value_.down, v}};
  const Projection a_in[] = {{&rate_.down, a}};
  const Projection g_in[] = {{&gate_.down, g}};
  const ProjectionGroup in[] = {{x.r, r_in}, {x.k, k_in}, {x.v, std::span(v_in).first(1 + shared)},
                                {x.w, w_in}, {x.a, a_in}, {x.g, g_in}};
  ProjectGroups(context, in);
  Softcap(context, w, 1, w);  // tanh
  Sigmoid(context, g, zeros_.data(), g);
  const Projection w_up[] = {{&decay_.up, out.w}};
  const Projection a_up[] = {{&rate_.up, out.a}};
  const Projection g_up[] = {{&gate_.up, out.g}};
  const Projection v_up[] = {{&value_.up, share}};
  const ProjectionGroup up[] = {{w, w_up}, {a, a_up}, {g, g_up}, {v, v_up}};
  ProjectGroups(context, std::span(up).first(3 + shared));
}

void Layer::MixTime(const Step& step, const Rows& x, const Rows& first_values,
                    const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t dim = config_.decoder.dim;
  const int64_t rows = step.rows();
  Rows shifted[kShifts];
  ConstFloats mix[kShifts];
  for (int i = 0; i < kShifts; ++i) {
    shifted[i] = step.MakeRows(dim);
    mix[i] = shift_.data() + i * dim;
  }
  TokenShift(context, step.layout(), step.StateOffset(layer_state_, 0), x, mix, shifted);
  const auto make = [&] { return step.MakeRows(dim); };
  const auto [r, w, k, v, a, g] = TimeRows{make(), make(), make(), make(), make(), make()};
  const Rows share = make();
  const auto [xr, xw, xk, xv, xa, xg] = shifted;
  ProjectTime(step, {xr, xw, xk, xv, xa, xg}, {r, w, k, v, a, g}, share);
  if (mixes_values()) {
    Sigmoid(context, share, value_.bias.data(), share);
    Lerp(context, v, first_values, share, v);
  } else {
    Scale(context, v, 1, first_values);
  }
  RwkvDecay(context, w, decay_.bias.data(), w);
  Sigmoid(context, a, rate_.bias.data(), a);

  // What leaves the state: the key it is kept under, and how much of it.
  const Rows key = step.MakeRows(dim);
  Mul(context, k, Broadcast(key_scale_, rows), key);
  L2Norm(context, key, config_.heads, kKeyEps, 1, key);
  const Rows removed = step.MakeRows(dim);
  Scale(context, key, -1, removed);
  const Rows replaced = step.MakeRows(dim);
  Mul(context, key, a, replaced);
  Mul(context, k, a, a);
  Lerp(context, k, a, Broadcast(key_rate_, rows), k);

  const Rows y = step.MakeRows(dim);
  Wkv7(context, step.layout(), step.StateOffset(layer_state_, 1), config_.heads,
       {r, w, k, v, removed, replaced}, y);
  LayerNorm(context, y, head_norm_.weight.data(), head_norm_.bias.data(), config_.heads, kHeadEps,
            y);
  RwkvBonus(context, r, k, bonus_.data(), v, config_.heads, y);
  Mul(context, y, g, y);
  const Projection output[] = {{&o_, out}};
  Project(context, y, output);
}

void Layer::MixChannels(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows shifted[] = {step.MakeRows(config_.decoder.dim)};
  const ConstFloats mix[] = {channel_shift_.data()};
  TokenShift(context, step.layout(), step.StateOffset(layer_state_, 2), x, mix, shifted);
  const Rows hidden = step.MakeRows(config_.decoder.hidden);
  const Projection key[] = {{&channel_key_, hidden}};
  Project(context, shifted[0], key);
  ReluSquared(context, hidden, hidden);
  const Projection value[] = {{&channel_value_, out}};
  Project(context, hidden, value);
}

void Layer::Forward(const Step& step, const Rows& x, const Rows& first_values) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const float eps = config_.decoder.eps;
  const Rows h = step.MakeRows(config_.decoder.dim);
  const Rows y = step.MakeRows(config_.decoder.dim);
  LayerNorm(context, x, time_norm_.weight.data(), time_norm_.bias.data(), 1, eps, h);
  MixTime(step, h, first_values, y);
  Add(context, x, y, x);
  LayerNorm(context, x, channel_norm_.weight.data(), channel_norm_.bias.data(), 1, eps, h);
  MixChannels(step, h, y);
  Add(context, x, y, x);
}

}  // namespace reprise::rwkv7
