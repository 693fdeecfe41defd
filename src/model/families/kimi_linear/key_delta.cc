// SPDX-License-Identifier: Apache-2.0
#include "model/families/kimi_linear/key_delta.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/activation_ops.h"
#include "kernels/scan_ops.h"

namespace reprise {
namespace {

// Added to the sum of squares when queries and keys are normalised; fixed by the published models.
constexpr float kL2Eps = 1e-6f;

}  // namespace

LayerState KeyDelta::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv",
            {shape_.reach - 1, 3 * shape_.width()},
            DType::kF32,
            std::vector<Section>(3, {shape_.heads, shape_.head_dim})},
           {"delta", {shape_.heads, shape_.head_dim, shape_.head_dim}, DType::kF32}}};
}

void KeyDelta::Declare(TensorPlan* plan) {
  const int64_t dim = shape_.dim;
  const int64_t width = shape_.width();
  const int64_t head = shape_.head_dim;
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string("self_attn.") + hf, gguf);
  };
  for (Vector* derived : {&conv_, &rate_, &zeros_}) plan->AddDerived(derived, layer_);
  plan->AddMatrix(name("q_proj.weight", "attn_q.weight"), width, dim, &q_);
  plan->AddMatrix(name("k_proj.weight", "attn_k.weight"), width, dim, &k_);
  plan->AddMatrix(name("v_proj.weight", "attn_v.weight"), width, dim, &v_);
  const auto add_conv = [&](const char* hf, const char* gguf, std::vector<float>* out) {
    PlannedTensor& conv = plan->AddVector(name(hf, gguf), shape_.reach, out);
    conv.rows = width;
    conv.transposed = true;
    conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
    conv.gguf_shape = Shape{width, 1, shape_.reach};
  };
  add_conv("q_conv1d.weight", "ssm_conv1d_q.weight", &q_conv_);
  add_conv("k_conv1d.weight", "ssm_conv1d_k.weight", &k_conv_);
  add_conv("v_conv1d.weight", "ssm_conv1d_v.weight", &v_conv_);
  plan->AddMatrix(name("f_a_proj.weight", "ssm_f_a.weight"), head, dim, &decay_a_);
  plan->AddMatrix(name("f_b_proj.weight", "ssm_f_b.weight"), width, head, &decay_b_);
  plan->AddVector(name("dt_bias", "ssm_dt.bias"), width, &dt_bias_).init = {-3, 1};
  PlannedTensor& a = plan->AddVector(name("A_log", "ssm_a"), shape_.heads, &exp_a_);
  a.values = ValueForm::kNegatedExp;
  a.init = {1, 0.7f};
  a.gguf_shape = Shape{shape_.heads, 1};
  plan->AddMatrix(name("b_proj.weight", "ssm_beta.weight"), shape_.heads, dim, &beta_);
  plan->AddMatrix(name("g_a_proj.weight", "ssm_g_a.weight"), head, dim, &gate_a_);
  plan->AddMatrix(name("g_b_proj.weight", "ssm_g_b.weight"), width, head, &gate_b_);
  plan->AddNorm(name("o_norm.weight", "ssm_norm.weight"), head, ValueForm::kPlain, &norm_);
  plan->AddMatrix(name("o_proj.weight", "attn_output.weight"), dim, width, &out_).init.deviation *=
      shape_.residual_gain;
}

void KeyDelta::CompleteWeights() {
  const int64_t width = shape_.width();
  conv_.values().resize(size_t(shape_.reach * 3 * width));
  for (int64_t row = 0; row < shape_.reach; ++row) {
    float* to = conv_.values().data() + row * 3 * width;
    for (std::vector<float>* part : {&q_conv_, &k_conv_, &v_conv_}) {
      std::copy_n(part->data() + row * width, width, to);
      to += width;
    }
  }
  for (std::vector<float>* part : {&q_conv_, &k_conv_, &v_conv_}) *part = {};
  std::vector<float>& rate = rate_.values();
  rate.resize(size_t(width));
  for (int64_t i = 0; i < width; ++i) rate[size_t(i)] = exp_a_[size_t(i / shape_.head_dim)];
  zeros_.values().assign(size_t(shape_.heads), 0.0f);
}

void KeyDelta::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t width = shape_.width();
  const Rows qkv = step.MakeRows(3 * width);
  const Rows decay_low = step.MakeRows(shape_.head_dim);
  const Rows gate_low = step.MakeRows(shape_.head_dim);
  const Rows beta = step.MakeRows(shape_.heads);
  const Projection inputs[] = {{&q_, Columns(qkv, 0, width)},
                               {&k_, Columns(qkv, width, width)},
                               {&v_, Columns(qkv, 2 * width, width)},
                               {&decay_a_, decay_low},
                               {&gate_a_, gate_low},
                               {&beta_, beta}};
  Project(context, x, inputs);
  const Rows decay = step.MakeRows(width);
  const Rows gate = step.MakeRows(width);
  const Projection up[] = {{&decay_b_, decay}, {&gate_b_, gate}};
  const ProjectionGroup groups[] = {{decay_low, {&up[0], 1}}, {gate_low, {&up[1], 1}}};
  ProjectGroups(context, groups);
  DecayGates(context, decay, dt_bias_.data(), rate_.data(), decay);
  Sigmoid(context, beta, zeros_.data(), beta);

  const Rows mixed = step.MakeRows(3 * width);
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(), nullptr,
            shape_.reach, true, qkv, mixed);
  const Rows q = Columns(mixed, 0, width);
  const Rows k = Columns(mixed, width, width);
  L2Norm(context, q, shape_.heads, kL2Eps, 1 / std::sqrt(float(shape_.head_dim)), q);
  L2Norm(context, k, shape_.heads, kL2Eps, 1, k);
  const Rows y = step.MakeRows(width);
  KeyDecayDelta(context, step.layout(), step.StateOffset(layer_state_, 1), shape_.heads, q, k,
                Columns(mixed, 2 * width, width), decay, beta, y);
  RmsNorm(context, y, norm_.data(), shape_.heads, shape_.eps, y);
  SigmoidMul(context, gate, y, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
