// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kernels/ops.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

enum class MlpActivation : uint8_t { kSwiGlu, kGeGlu };

// What distinguishes the feed-forward blocks of families, as data.
struct MlpShape {
  int64_t dim = 0;  // width of the residual stream
  int64_t hidden = 0;
  MlpActivation activation = MlpActivation::kSwiGlu;
  bool fused = false;       // the files hold gate and up in one matrix, gate first
  float residual_gain = 1;  // synth only: deviation of the down projection
  // Names: "<hf>.gate_proj.weight" and "ffn_gate<gguf>.weight".
  std::string hf = "mlp";
  std::string gguf;
};

// The gated feed-forward block: W_down (act(W_gate x) * W_up x).
class GatedMlp {
 public:
  GatedMlp(const MlpShape& shape, int layer) : shape_(shape), layer_(layer) {}

  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const Rows& x, const Rows& out) const;

 private:
  MlpShape shape_;
  int layer_;
  Matrix gate_up_;  // fused
  Matrix gate_, up_, down_;
};

}  // namespace reprise
