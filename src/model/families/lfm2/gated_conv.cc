// SPDX-License-Identifier: Apache-2.0
#include "model/families/lfm2/gated_conv.h"

#include <cmath>

#include "kernels/activation_ops.h"

namespace reprise {

LayerState GatedConv::state() const {
  return {
      layer_, StateKind::kRecurrent, 0, {{"conv", {shape_.reach - 1, shape_.dim}, DType::kF32}}};
}

void GatedConv::AddCost(StateSpec* state) const {
  state->token_cost += double(shape_.reach) * double(shape_.dim);
}

void GatedConv::Declare(TensorPlan* plan) {
  const int64_t dim = shape_.dim;
  plan->AddMatrix(plan->Layer(layer_, "conv.in_proj.weight", "shortconv.in_proj.weight"), 3 * dim,
                  dim, &in_)
      .sections = {Plain(dim), Plain(dim), Plain(dim)};
  PlannedTensor& conv = plan->AddVector(
      plan->Layer(layer_, "conv.conv.weight", "shortconv.conv.weight"), shape_.reach, &conv_);
  conv.rows = dim;
  conv.transposed = true;
  conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  plan->AddMatrix(plan->Layer(layer_, "conv.out_proj.weight", "shortconv.out_proj.weight"), dim,
                  dim, &out_)
      .init.deviation *= shape_.residual_gain;
}

void GatedConv::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t dim = shape_.dim;
  const Rows all = step.MakeRows(3 * dim);
  const Projection input[] = {{&in_, all}};
  Project(context, x, input);
  const Rows b = Columns(all, 0, dim);
  const Rows c = Columns(all, dim, dim);
  Mul(context, b, Columns(all, 2 * dim, dim), b);
  const Rows y = step.MakeRows(dim);
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(), nullptr,
            shape_.reach,
            /*silu=*/false, b, y);
  Mul(context, c, y, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
