// SPDX-License-Identifier: Apache-2.0
#include "model/families/recurrent_gemma/rg_lru.h"

#include <cmath>
#include <string>

#include "kernels/activation_ops.h"
#include "kernels/reference/math.h"
#include "kernels/scan_ops.h"

namespace reprise {

LayerState GriffinRecurrence::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv", {shape_.reach - 1, shape_.width}, DType::kF32},
           {"lru", {shape_.width}, DType::kF32}}};
}

void GriffinRecurrence::AddCost(StateSpec* state) const {
  // Two sigmoids, two exponentials and a root per channel.
  state->token_cost += 30.0 * double(shape_.width);
}

void GriffinRecurrence::Declare(TensorPlan* plan) {
  const int64_t width = shape_.width;
  const auto name = [&](const std::string& hf, const std::string& gguf) {
    return plan->Layer(layer_, "temporal_block." + hf, gguf);
  };
  const auto linear = [&](const std::string& hf, const std::string& gguf, int64_t rows,
                          int64_t cols, Matrix* out, Vector* bias) -> PlannedTensor& {
    plan->AddVector(name(hf + ".bias", gguf + ".bias"), rows, bias).init = {0, 0.1f};
    return plan->AddMatrix(name(hf + ".weight", gguf + ".weight"), rows, cols, out);
  };
  linear("linear_x", "rec_x", width, shape_.dim, &x_, &x_bias_);
  linear("linear_y", "rec_y", width, shape_.dim, &y_, &y_bias_);
  PlannedTensor& conv =
      plan->AddVector(name("conv_1d.weight", "rec_conv.weight"), shape_.reach, &conv_);
  conv.rows = width;
  conv.transposed = true;
  conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  plan->AddVector(name("conv_1d.bias", "rec_conv.bias"), width, &conv_bias_).init = {0, 0.1f};
  // Hugging Face files hold [blocks, in, out].
  const auto gate = [&](const std::string& hf, const std::string& gguf, Matrix* out, Vector* bias) {
    const int64_t block = block_width();
    PlannedTensor& tensor =
        plan->AddStack({"", plan->Layer(layer_, "", gguf + ".weight").gguf, layer_}, shape_.blocks,
                       block, block, out);
    tensor.fused = {name("rg_lru." + hf + "_weight", "").hf,
                    "",
                    width,
                    {{shape_.blocks, block, 0, block}},
                    true};
    plan->AddVector(name("rg_lru." + hf + "_bias", gguf + ".bias"), width, bias).init = {0, 0.1f};
  };
  gate("input_gate", "rec_input_gate", &input_gate_, &input_bias_);
  gate("recurrent_gate", "rec_recurrent_gate", &recurrent_gate_, &recurrent_bias_);
  plan->AddVector(name("rg_lru.recurrent_param", "rec_lambda"), width, &rate_).init = {-3, 1};
  linear("linear_out", "rec_out", shape_.dim, width, &out_, &out_bias_).init.deviation *=
      shape_.residual_gain;
}

void GriffinRecurrence::CompleteWeights() {
  for (float& rate : rate_.values()) {
    const double x = rate;
    const double softplus = x > 20 ? x : reference::LogDouble(1 + reference::ExpDouble(x));
    rate = float(8 * softplus);
  }
}

void GriffinRecurrence::RunGates(const Step& step, const ConstRows& x, const Rows& input,
                                 const Rows& recurrence) const {
  const HeadProjection gates[] = {
      {&input_gate_, input, block_width(), input_bias_.data()},
      {&recurrent_gate_, recurrence, block_width(), recurrent_bias_.data()}};
  ProjectHeads(step.context(), x, block_width(), gates);
}

void GriffinRecurrence::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t width = shape_.width;
  const Rows u = step.MakeRows(width);
  const Rows gate = step.MakeRows(width);
  const Projection inputs[] = {{&x_, u, x_bias_.data()}, {&y_, gate, y_bias_.data()}};
  Project(context, x, inputs);
  Gelu(context, gate, gate);
  const Rows mixed = step.MakeRows(width);
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(),
            conv_bias_.data(), shape_.reach, /*silu=*/false, u, mixed);
  const Rows input = step.MakeRows(width);
  const Rows recurrence = step.MakeRows(width);
  RunGates(step, mixed, input, recurrence);
  const Rows y = step.MakeRows(width);
  RgLru(context, step.layout(), step.StateOffset(layer_state_, 1), rate_.data(), mixed, recurrence,
        input, y);
  Mul(context, y, gate, y);
  const Projection output[] = {{&out_, out, out_bias_.data()}};
  Project(context, y, output);
}

}  // namespace reprise
