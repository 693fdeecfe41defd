// SPDX-License-Identifier: Apache-2.0
#include "model/layers/mamba.h"

#include <cmath>
#include <string>

#include "kernels/activation_ops.h"
#include "kernels/scan_ops.h"
#include "model/config/reader.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

void ReadMambaShape(ConfigReader* reader, const MambaKeys& keys, MambaShape* shape) {
  shape->state_dim = int(reader->Int({keys.state_dim, "ssm.state_size"}, {1, 4096}));
  shape->reach = int(reader->Int({keys.reach, "ssm.conv_kernel"}, {2, 16}));
  shape->rank =
      int(reader->Int({keys.rank, "ssm.time_step_rank"}, kAnySize, (shape->dim + 15) / 16));
  const int64_t inner =
      int64_t(reader->Number({keys.expand, ""}, {0.001, 64}, 2.0) * double(shape->dim));
  shape->inner = reader->Int({keys.inner, "ssm.inner_size"}, kAnySize, inner);
  if (shape->inner < 1 || shape->inner > kAnySize.max) {
    reader->Refuse("Mamba layers of " + std::to_string(shape->inner) +
                   " channels are not supported");
  }
  if (reader->Bool({keys.bias, ""}, false)) {
    reader->Refuse("Mamba layers with biases on their projections (" + std::string(keys.bias) +
                   ") are not supported");
  }
  if (!reader->Bool({keys.conv_bias, ""}, true)) {
    reader->Refuse("Mamba layers without a bias on the convolution (" +
                   std::string(keys.conv_bias) + ") are not supported");
  }
}

void DescribeMamba(const MambaShape& shape, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".ssm.";
  out->Put<uint32_t>(prefix + "conv_kernel", uint32_t(shape.reach));
  out->Put<uint32_t>(prefix + "inner_size", uint32_t(shape.inner));
  out->Put<uint32_t>(prefix + "state_size", uint32_t(shape.state_dim));
  out->Put<uint32_t>(prefix + "time_step_rank", uint32_t(shape.rank));
}

LayerState Mamba::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv", {shape_.reach - 1, shape_.inner}, DType::kF32},
           {"ssm", {shape_.state_dim, shape_.inner}, DType::kF32}}};
}

void Mamba::AddCost(StateSpec* state) const {
  // Multiply-adds of the recurrence; an exponential counts as several.
  state->token_cost += 10.0 * double(shape_.inner) * shape_.state_dim;
}

void Mamba::Declare(TensorPlan* plan) {
  const int64_t inner = shape_.inner;
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string(shape_.hf_module) + hf, gguf);
  };
  plan->AddMatrix(name("in_proj.weight", "ssm_in.weight"), 2 * inner, shape_.dim, &in_).sections =
      {Plain(inner), Plain(inner)};
  PlannedTensor& conv =
      plan->AddVector(name("conv1d.weight", "ssm_conv1d.weight"), shape_.reach, &conv_);
  conv.rows = inner;
  conv.transposed = true;
  conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  plan->AddVector(name("conv1d.bias", "ssm_conv1d.bias"), inner, &conv_bias_).init = {0, 0.1f};
  plan->AddMatrix(name("x_proj.weight", "ssm_x.weight"), mixed_width(), inner, &mix_);
  if (shape_.norms == MambaShape::Norms::kLearned) {
    plan->AddNorm(name("dt_layernorm.weight", "ssm_dt_norm.weight"), shape_.rank, ValueForm::kPlain,
                  &step_norm_);
    plan->AddNorm(name("b_layernorm.weight", "ssm_b_norm.weight"), shape_.state_dim,
                  ValueForm::kPlain, &b_norm_);
    plan->AddNorm(name("c_layernorm.weight", "ssm_c_norm.weight"), shape_.state_dim,
                  ValueForm::kPlain, &c_norm_);
  } else {
    for (Vector* derived : {&step_norm_, &b_norm_, &c_norm_}) plan->AddDerived(derived, layer_);
  }
  plan->AddMatrix(name("dt_proj.weight", "ssm_dt.weight"), inner, shape_.rank, &step_);
  plan->AddVector(name("dt_proj.bias", "ssm_dt.bias"), inner, &step_bias_).init = {-3, 1};
  PlannedTensor& a = plan->AddVector(name("A_log", "ssm_a"), shape_.state_dim, &a_);
  a.rows = inner;
  a.transposed = true;
  a.values = ValueForm::kNegatedExp;
  a.init = {1, 0.7f};
  plan->AddVector(name("D", "ssm_d"), inner, &skip_).init = {1, 0.1f};
  plan->AddMatrix(name("out_proj.weight", "ssm_out.weight"), shape_.dim, inner, &out_)
      .init.deviation *= shape_.residual_gain;
}

void Mamba::CompleteWeights() {
  for (float& a : a_.values()) a = -a;
  if (shape_.norms == MambaShape::Norms::kPlain) {
    step_norm_.values().assign(size_t(shape_.rank), 1.0f);
    b_norm_.values().assign(size_t(shape_.state_dim), 1.0f);
    c_norm_.values().assign(size_t(shape_.state_dim), 1.0f);
  }
}

void Mamba::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t inner = shape_.inner;
  const Rows xz = step.MakeRows(2 * inner);
  const Projection input[] = {{&in_, xz}};
  Project(context, x, input);

  const Rows u = step.MakeRows(inner);
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(),
            conv_bias_.data(), shape_.reach, /*silu=*/true, Columns(xz, 0, inner), u);
  const Rows mixed = step.MakeRows(mixed_width());
  const Projection mix[] = {{&mix_, mixed}};
  Project(context, u, mix);
  const Rows dt = Columns(mixed, 0, shape_.rank);
  const Rows b = Columns(mixed, shape_.rank, shape_.state_dim);
  const Rows c = Columns(mixed, shape_.rank + shape_.state_dim, shape_.state_dim);
  if (shape_.norms != MambaShape::Norms::kNone) {
    RmsNorm(context, dt, step_norm_.data(), 1, shape_.norm_eps, dt);
    RmsNorm(context, b, b_norm_.data(), 1, shape_.norm_eps, b);
    RmsNorm(context, c, c_norm_.data(), 1, shape_.norm_eps, c);
  }
  const Rows delta = step.MakeRows(inner);
  const Projection steps[] = {{&step_, delta}};
  Project(context, dt, steps);
  Softplus(context, delta, step_bias_.data(), delta);

  const Rows y = step.MakeRows(inner);
  SelectiveScan(context, step.layout(), step.StateOffset(layer_state_, 1), a_.data(), skip_.data(),
                u, delta, b, c, y);
  SwiGlu(context, Columns(xz, inner, inner), y, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
