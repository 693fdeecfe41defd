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

struct RgLruShape {
  int64_t dim = 0;          // width of the residual stream
  int64_t width = 0;        // channels of the recurrence
  int blocks = 0;           // of the block-diagonal gates
  int reach = 0;            // of the short convolution
  float residual_gain = 1;  // synth only
};

// The recurrent block of Griffin: a gated linear recurrence per channel behind a short convolution,
// times a gelu branch. Its state is the window of the convolution and one value per channel.
class GriffinRecurrence {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  GriffinRecurrence(const RgLruShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  // Both gates of every block before their sigmoids.
  void RunGates(const Step& step, const ConstRows& x, const Rows& input,
                const Rows& recurrence) const;
  int64_t block_width() const { return shape_.width / shape_.blocks; }

  RgLruShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix x_, y_, out_;
  Vector x_bias_, y_bias_, out_bias_;
  Vector conv_;  // [reach, width]
  Vector conv_bias_;
  Matrix input_gate_, recurrent_gate_;  // [blocks]
  Vector input_bias_, recurrent_bias_;  // [width]
  Vector rate_;                         // [width], 8 * softplus(lambda)
};

}  // namespace reprise
