// SPDX-License-Identifier: Apache-2.0
#include "model/layers/swiglu.h"

namespace reprise {

void SwiGluMlp::Declare(TensorPlan* plan) {
  plan->AddMatrix(plan->Layer(layer_, "mlp.gate_proj.weight", "ffn_gate.weight"), hidden_, dim_,
                  &gate_);
  plan->AddMatrix(plan->Layer(layer_, "mlp.up_proj.weight", "ffn_up.weight"), hidden_, dim_, &up_);
  plan->AddMatrix(plan->Layer(layer_, "mlp.down_proj.weight", "ffn_down.weight"), dim_, hidden_,
                  &down_)
      .init.deviation *= residual_gain_;
}

void SwiGluMlp::Forward(const Step& step, const Rows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows gate = step.MakeRows(hidden_);
  const Rows up = step.MakeRows(hidden_);
  const Projection inputs[] = {{&gate_, gate}, {&up_, up}};
  Project(context, x, inputs);
  SwiGlu(context, gate, up, gate);
  const Projection output[] = {{&down_, out}};
  Project(context, gate, output);
}

}  // namespace reprise
