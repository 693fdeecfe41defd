// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct LightningShape {
  int64_t dim = 0;  // width of the residual stream
  int heads = 0;
  int head_dim = 0;
  int layer_count = 0;      // of the model: early layers forget faster
  float residual_gain = 1;  // synth only

  int64_t width() const { return int64_t{heads} * head_dim; }
};

// Lightning attention: per head S = e^-slope S + k v^T and y = S^T q, where q, k and v have passed
// a SiLU and the slope is a constant of head and layer. It is the scan of Mamba-2 with steps of 1
// and a group a head. Its state is the matrices.
class Lightning {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  Lightning(const LightningShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;
  // Adds the multiply-adds of the recurrence to the cost of computing a token again.
  void AddCost(StateSpec* state) const {
    state->token_cost += 3.0 * double(shape_.width()) * shape_.head_dim;
  }

 private:
  LightningShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix qkv_;  // per head: q, k, v
  Matrix gate_, out_;
  Vector norm_;    // [width]
  Vector slopes_;  // [heads], negative
  Vector zeros_;   // [heads]
};

}  // namespace reprise
