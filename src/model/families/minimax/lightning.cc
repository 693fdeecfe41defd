// SPDX-License-Identifier: Apache-2.0
#include "model/families/minimax/lightning.h"

#include <string>

#include "kernels/activation_ops.h"
#include "kernels/reference/math.h"
#include "kernels/scan_ops.h"

namespace reprise {
namespace {

constexpr float kNormEps = 1e-6f;  // fixed by the published models, not configured

}  // namespace

LayerState Lightning::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"ssm", {shape_.heads, shape_.head_dim, shape_.head_dim}, DType::kF32}}};
}

void Lightning::Declare(TensorPlan* plan) {
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string("self_attn.") + hf, gguf);
  };
  plan->AddMatrix(name("qkv_proj.weight", "attn_qkv.weight"), 3 * shape_.width(), shape_.dim,
                  &qkv_)
      .sections = {{shape_.heads, 3 * int64_t{shape_.head_dim}}};
  plan->AddMatrix(name("output_gate.weight", "attn_gate.weight"), shape_.width(), shape_.dim,
                  &gate_);
  plan->AddNorm(name("norm.weight", "attn_norm_2.weight"), shape_.width(), ValueForm::kPlain,
                &norm_);
  plan->AddMatrix(name("out_proj.weight", "attn_output.weight"), shape_.dim, shape_.width(), &out_)
      .init.deviation *= shape_.residual_gain;
  plan->AddDerived(&slopes_, layer_);
  plan->AddDerived(&zeros_, layer_);
}

void Lightning::CompleteWeights() {
  const double place = double(layer_) / (double(shape_.layer_count - 1) + 1e-5);
  const double factor = 1 - place + 1e-5;
  slopes_.values().clear();
  for (int h = 0; h < shape_.heads; ++h) {
    const double slope = reference::PowDouble(2, -8.0 * (h + 1) / shape_.heads);
    slopes_.values().push_back(float(-slope * factor));
  }
  zeros_.values().assign(size_t(shape_.heads), 0.0f);
}

void Lightning::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t head = shape_.head_dim;
  const int64_t width = shape_.width();
  const Rows joined = step.MakeRows(3 * width);
  const Rows gate = step.MakeRows(width);
  const Projection inputs[] = {{&qkv_, joined}, {&gate_, gate}};
  Project(context, x, inputs);
  Silu(context, joined, joined);
  const Rows apart = step.MakeRows(3 * width);
  Rows parts[3];
  for (int i = 0; i < 3; ++i) {
    parts[i] = Columns(apart, i * width, width);
    CopyHeads(context, shape_.heads, head, Columns(joined, i * head, 3 * width - i * head),
              3 * head, parts[i], head);
  }
  // softplus(0), held between 1 and 1, is a step of 1.
  const Rows nothing = step.MakeRows(shape_.heads);
  const Rows steps = step.MakeRows(shape_.heads);
  const Rows decay = step.MakeRows(shape_.heads);
  Fill(context, 0, nothing);
  SsdGates(context, nothing, zeros_.data(), slopes_.data(), 1, 1, steps, decay);
  const SsdShape shape{shape_.heads, shape_.heads, shape_.head_dim, shape_.head_dim};
  const Rows y = step.MakeRows(width);
  Ssd(context, step.layout(), step.StateOffset(layer_state_, 0), shape, parts[2], parts[1],
      parts[0], steps, decay, zeros_.data(), y);
  RmsNorm(context, y, norm_.data(), 1, kNormEps, y);
  SigmoidMul(context, gate, y, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
