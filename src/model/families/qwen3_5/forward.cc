// SPDX-License-Identifier: Apache-2.0
#include "model/families/qwen3_5/qwen3_5.h"

namespace reprise::qwen3_5 {

void Qwen35::Forward(const OpContext& context, const BatchView& batch, const StateMemory& memory,
                     float* logits) const {
  const ScratchScope scope(*context.scratch);
  const float eps = config_.decoder.eps;
  const Step step(context, batch, memory);
  const Rows x = vocabulary_.Embed(step);
  const RopeTable rope = MakeRopeTable(context, step.positions(), frequencies_);
  const Rows h = step.MakeRows(config_.decoder.dim);
  const Rows y = step.MakeRows(config_.decoder.dim);
  for (const Layer& layer : layers_) {
    RmsNorm(context, x, layer.mixer_norm.data(), 1, eps, h);
    if (layer.delta) {
      layer.delta->Forward(step, h, y);
    } else {
      layer.attention->Forward(step, rope, h, y);
    }
    Add(context, x, y, x);
    RmsNorm(context, x, layer.mlp_norm.data(), 1, eps, h);
    layer.mlp.Forward(step, h, y);
    Add(context, x, y, x);
  }
  vocabulary_.Logits(step, x, logits);
}

}  // namespace reprise::qwen3_5
