// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// kReluSquared: W_down relu(W_up x)^2, without a gate.
enum class MlpActivation : uint8_t { kSwiGlu, kGeGlu, kReluSquared };

// What distinguishes the feed-forward blocks of families, as data.
struct MlpShape {
  int64_t dim = 0;  // width of the residual stream
  int64_t hidden = 0;
  MlpActivation activation = MlpActivation::kSwiGlu;
  bool fused = false;       // the files hold gate and up in one matrix, gate first
  float residual_gain = 1;  // synth only: deviation of the down projection
  bool bias = false;        // on all three
  // Of the gate only what lies above its mean + cut * its deviation goes on, less that; -inf: all.
  float cut = -std::numeric_limits<float>::infinity();
  // Factors of the gate and of the output. GGUF files have them in their weights.
  float gate_scale = 1;
  float out_scale = 1;
  // Names: "<hf>.<hf_gate>.weight" and "ffn_gate<gguf>.weight".
  std::string hf = "mlp";
  std::string hf_gate = "gate_proj";
  std::string hf_up = "up_proj";
  std::string hf_down = "down_proj";
  std::string hf_fused = "gate_up_proj";
  std::string hf_both;  // gate and up in one where GGUF has two; gate first
  std::string gguf;
  std::string hf_alias;  // another "<hf>" of the same family; "": none
};

// The feed-forward block: W_down (act(W_gate x) * W_up x).
class GatedMlp {
 public:
  GatedMlp(const MlpShape& shape, int layer) : shape_(shape), layer_(layer) {}

  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  bool gated() const { return shape_.activation != MlpActivation::kReluSquared; }

  MlpShape shape_;
  int layer_;
  Matrix gate_up_;  // fused
  Matrix gate_, up_, down_;
  Vector gate_bias_, up_bias_, down_bias_;
};

}  // namespace reprise
