// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct SignedDeltaShape {
  int64_t dim = 0;  // width of the residual stream
  int heads = 0;
  int key_dim = 0;        // of one head
  int value_dim = 0;      // of one head
  int reach = 0;          // of the short convolution
  float write_scale = 1;    // of beta: with 2, states may change their sign
  float residual_gain = 1;  // synth only

  int64_t key_width() const { return int64_t{heads} * key_dim; }
  int64_t value_width() const { return int64_t{heads} * value_dim; }
  int64_t conv_width() const { return 2 * key_width() + value_width(); }
};

// The linear-attention mixer of OLMo Hybrid: a gated delta rule whose writes may be twice as
// strong, behind a short causal convolution. Its state is the convolution's window and the
// matrices.
class SignedDelta {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  SignedDelta(const SignedDeltaShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;
  // Adds the multiply-adds of the recurrence to the cost of computing a token again.
  void AddCost(StateSpec* state) const {
    state->token_cost += 4.0 * double(shape_.value_width()) * shape_.key_dim;
  }

 private:
  SignedDeltaShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix q_, k_, v_, gate_, a_, b_, out_;
  std::array<std::vector<float>, 3> convs_;  // of q, k and v, until they are joined
  Vector conv_;                              // [reach, conv_width]
  Vector dt_bias_;  // [heads]
  Vector exp_a_;    // [heads]
  Vector norm_;     // [value_dim]
};

}  // namespace reprise
