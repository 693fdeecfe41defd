// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct KeyDeltaShape {
  int64_t dim = 0;  // width of the residual stream
  int heads = 0;
  int head_dim = 0;         // of keys and values
  int reach = 0;            // of the short convolutions
  float eps = 0;            // of the gated norm
  float residual_gain = 1;  // synth only

  int64_t width() const { return int64_t{heads} * head_dim; }
};

// Kimi Delta Attention: the gated delta rule with a decay for every key channel, behind short
// convolutions of q, k and v. Its state is the windows of these and a matrix per head.
class KeyDelta {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  KeyDelta(const KeyDeltaShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  // Decay, read, write and query of every matrix.
  void AddCost(StateSpec* state) const {
    state->token_cost += 4.0 * double(shape_.width()) * shape_.head_dim;
  }
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  KeyDeltaShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix q_, k_, v_, beta_, out_;
  Matrix decay_a_, decay_b_, gate_a_, gate_b_;   // through head_dim channels each
  std::vector<float> q_conv_, k_conv_, v_conv_;  // [reach, width]; empty once they are joined
  Vector conv_;                                  // [reach, 3 width]
  std::vector<float> exp_a_;                     // [heads]
  Vector rate_;                                  // [width]
  Vector dt_bias_;                               // [width]
  Vector norm_;                                  // [head_dim]
  Vector zeros_;                                 // [heads]
};

}  // namespace reprise
