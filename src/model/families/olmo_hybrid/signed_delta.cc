// SPDX-License-Identifier: Apache-2.0
#include "model/families/olmo_hybrid/signed_delta.h"

#include <cmath>

#include "kernels/activation_ops.h"

namespace reprise {
namespace {

// Fixed by the published models, not configured: what is added to the sum of squares when queries
// and keys are normalised, and to the mean of squares in the gated norm.
constexpr float kL2Eps = 1e-6f;
constexpr float kNormEps = 1e-5f;

}  // namespace

LayerState SignedDelta::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv",
            {shape_.reach - 1, shape_.conv_width()},
            DType::kF32,
            {{shape_.heads, shape_.key_dim},
             {shape_.heads, shape_.key_dim},
             {shape_.heads, shape_.value_dim}}},
           {"delta", {shape_.heads, shape_.key_dim, shape_.value_dim}, DType::kF32}}};
}

void SignedDelta::Declare(TensorPlan* plan) {
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string("linear_attn.") + hf, gguf);
  };
  const auto add = [&](const char* hf, const char* gguf, int64_t rows,
                       Matrix* out) -> PlannedTensor& {
    return plan->AddMatrix(name(hf, gguf), rows, shape_.dim, out);
  };
  add("q_proj.weight", "attn_q.weight", shape_.key_width(), &q_);
  add("k_proj.weight", "attn_k.weight", shape_.key_width(), &k_);
  add("v_proj.weight", "attn_v.weight", shape_.value_width(), &v_);
  add("g_proj.weight", "attn_gate.weight", shape_.value_width(), &gate_);
  add("a_proj.weight", "ssm_alpha.weight", shape_.heads, &a_).decides = true;
  add("b_proj.weight", "ssm_beta.weight", shape_.heads, &b_).decides = true;
  const auto add_conv = [&](const char* hf, const char* gguf, int64_t channels,
                            std::vector<float>* out) {
    PlannedTensor& conv = plan->AddVector(name(hf, gguf), shape_.reach, out);
    conv.rows = channels;
    conv.transposed = true;
    conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  };
  add_conv("q_conv1d.weight", "ssm_conv1d_q.weight", shape_.key_width(), &convs_[0]);
  add_conv("k_conv1d.weight", "ssm_conv1d_k.weight", shape_.key_width(), &convs_[1]);
  add_conv("v_conv1d.weight", "ssm_conv1d_v.weight", shape_.value_width(), &convs_[2]);
  plan->AddDerived(&conv_, layer_);
  plan->AddVector(name("dt_bias", "ssm_dt.bias"), shape_.heads, &dt_bias_).init = {-3, 1};
  PlannedTensor& a = plan->AddVector(name("A_log", "ssm_a"), shape_.heads, &exp_a_);
  a.values = ValueForm::kNegatedExp;
  a.init = {1, 0.7f};
  plan->AddNorm(name("o_norm.weight", "ssm_norm.weight"), shape_.value_dim, ValueForm::kPlain,
                &norm_);
  plan->AddMatrix(name("o_proj.weight", "ssm_out.weight"), shape_.dim, shape_.value_width(), &out_)
      .init.deviation *= shape_.residual_gain;
}

void SignedDelta::CompleteWeights() {
  conv_.values().clear();
  for (int64_t row = 0; row < shape_.reach; ++row) {
    for (const std::vector<float>& part : convs_) {
      const auto width = int64_t(part.size()) / shape_.reach;
      conv_.values().insert(conv_.values().end(), part.begin() + row * width,
                            part.begin() + (row + 1) * width);
    }
  }
  for (std::vector<float>& part : convs_) part = {};
}

void SignedDelta::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t keys = shape_.key_width();
  const int64_t values = shape_.value_width();
  const Rows qkv = step.MakeRows(shape_.conv_width());
  const Rows gate = step.MakeRows(values);
  const Rows a = step.MakeRows(shape_.heads);
  const Rows b = step.MakeRows(shape_.heads);
  const Projection inputs[] = {{&q_, Columns(qkv, 0, keys)},
                               {&k_, Columns(qkv, keys, keys)},
                               {&v_, Columns(qkv, 2 * keys, values)},
                               {&gate_, gate},
                               {&a_, a},
                               {&b_, b}};
  Project(context, x, inputs);
  const Rows mixed = step.MakeRows(shape_.conv_width());
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(), nullptr,
            shape_.reach, /*silu=*/true, qkv, mixed);
  const Rows q = Columns(mixed, 0, keys);
  const Rows k = Columns(mixed, keys, keys);
  L2Norm(context, q, shape_.heads, kL2Eps, 1 / std::sqrt(float(shape_.key_dim)), q);
  L2Norm(context, k, shape_.heads, kL2Eps, 1, k);
  GatedDeltaGates(context, a, b, exp_a_.data(), dt_bias_.data(), a, b);
  if (shape_.write_scale != 1) Scale(context, b, shape_.write_scale, b);
  const GatedDeltaShape shape{shape_.heads, shape_.heads, shape_.key_dim, shape_.value_dim, false};
  const Rows y = step.MakeRows(values);
  GatedDelta(context, step.layout(), step.StateOffset(layer_state_, 1), shape, q, k,
             Columns(mixed, 2 * keys, values), a, b, y);
  RmsNormGated(context, y, gate, norm_.data(), shape_.heads, kNormEps, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
