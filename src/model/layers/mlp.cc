// SPDX-License-Identifier: Apache-2.0
#include "model/layers/mlp.h"

#include <cmath>

#include "kernels/activation_ops.h"

namespace reprise {
void GatedMlp::Declare(TensorPlan* plan) {
  const int64_t dim = shape_.dim;
  const int64_t hidden = shape_.hidden;
  const auto add = [&](const std::string& hf, const std::string& gguf, int64_t rows, int64_t cols,
                       Matrix* out, Vector* bias) -> PlannedTensor& {
    if (shape_.bias) {
      plan->AddVector(
              plan->Layer(layer_, shape_.hf + "." + hf + ".bias", gguf + shape_.gguf + ".bias"),
              rows, bias)
          .init = {0, 0.1f};
    }
    PlannedTensor& tensor = plan->AddMatrix(
        plan->Layer(layer_, shape_.hf + "." + hf + ".weight", gguf + shape_.gguf + ".weight"), rows,
        cols, out);
    if (!shape_.hf_alias.empty()) {
      const auto alias = plan->Layer(layer_, shape_.hf_alias + "." + hf + ".weight", "");
      tensor.fused = {alias.hf, "", rows, {{1, rows, 0, rows}}};
    }
    return tensor;
  };
  if (shape_.fused) {
    add(shape_.hf_fused, "ffn_up", 2 * hidden, dim, &gate_up_, &gate_bias_).sections = {
        Plain(hidden), Plain(hidden)};
  } else {
    const std::string both =
        shape_.hf_both.empty()
            ? ""
            : plan->Layer(layer_, shape_.hf + "." + shape_.hf_both + ".weight", "").hf;
    const auto part_of_both = [&](PlannedTensor& tensor, int64_t first) {
      if (!both.empty()) tensor.fused = {both, "", 2 * hidden, {{1, hidden, first, hidden}}};
    };
    if (gated()) {
      PlannedTensor& gate = add(shape_.hf_gate, "ffn_gate", hidden, dim, &gate_, &gate_bias_);
      gate.gguf_factors = {{hidden, shape_.gate_scale}};
      part_of_both(gate, 0);
    }
    part_of_both(add(shape_.hf_up, "ffn_up", hidden, dim, &up_, &up_bias_), hidden);
  }
  PlannedTensor& down = add(shape_.hf_down, "ffn_down", dim, hidden, &down_, &down_bias_);
  down.init.deviation *= shape_.residual_gain;
  down.gguf_factors = {{dim, shape_.out_scale}};
}

void GatedMlp::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows both = step.MakeRows(x.rows, gated() ? 2 * shape_.hidden : shape_.hidden);
  const Rows gate = Columns(both, 0, shape_.hidden);
  const Rows up = gated() ? Columns(both, shape_.hidden, shape_.hidden) : gate;
  if (shape_.fused) {
    const Projection input[] = {{&gate_up_, both, gate_bias_.data()}};
    Project(context, x, input);
  } else {
    const Projection inputs[] = {{&up_, up, up_bias_.data()}, {&gate_, gate, gate_bias_.data()}};
    Project(context, x, std::span(inputs).first(gated() ? 2 : 1));
  }
  if (shape_.gate_scale != 1) Scale(context, gate, shape_.gate_scale, gate);
  if (std::isfinite(shape_.cut)) CutBelow(context, gate, shape_.cut, gate);
  switch (shape_.activation) {
    case MlpActivation::kSwiGlu:
      SwiGlu(context, gate, up, gate);
      break;
    case MlpActivation::kGeGlu:
      GeGlu(context, gate, up, gate);
      break;
    case MlpActivation::kReluSquared:
      ReluSquared(context, gate, gate);
      break;
  }
  const Projection output[] = {{&down_, out, down_bias_.data()}};
  Project(context, gate, output);
  if (shape_.out_scale != 1) Scale(context, out, shape_.out_scale, out);
}

}  // namespace reprise
