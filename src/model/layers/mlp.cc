// SPDX-License-Identifier: Apache-2.0
#include "model/layers/mlp.h"

#include "kernels/activation_ops.h"

namespace reprise {

void GatedMlp::Declare(TensorPlan* plan) {
  const int64_t dim = shape_.dim;
  const int64_t hidden = shape_.hidden;
  const auto name = [&](const std::string& hf, const std::string& gguf) {
    return plan->Layer(layer_, shape_.hf + "." + hf + ".weight", gguf + shape_.gguf + ".weight");
  };
  if (shape_.fused) {
    plan->AddMatrix(name("gate_up_proj", "ffn_up"), 2 * hidden, dim, &gate_up_);
  } else {
    plan->AddMatrix(name("gate_proj", "ffn_gate"), hidden, dim, &gate_);
    plan->AddMatrix(name("up_proj", "ffn_up"), hidden, dim, &up_);
  }
  plan->AddMatrix(name("down_proj", "ffn_down"), dim, hidden, &down_).init.deviation *=
      shape_.residual_gain;
}

void GatedMlp::Forward(const Step& step, const Rows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows both = step.MakeRows(x.rows, 2 * shape_.hidden);
  const Rows gate = Columns(both, 0, shape_.hidden);
  const Rows up = Columns(both, shape_.hidden, shape_.hidden);
  if (shape_.fused) {
    const Projection input[] = {{&gate_up_, both}};
    Project(context, x, input);
  } else {
    const Projection inputs[] = {{&gate_, gate}, {&up_, up}};
    Project(context, x, inputs);
  }
  if (shape_.activation == MlpActivation::kGeGlu) {
    GeGlu(context, gate, up, gate);
  } else {
    SwiGlu(context, gate, up, gate);
  }
  const Projection output[] = {{&down_, out}};
  Project(context, gate, output);
}

}  // namespace reprise
