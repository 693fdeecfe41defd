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

struct GatedConvShape {
  int64_t dim = 0;  // width of the residual stream
  int reach = 0;
  float residual_gain = 1;  // synth only
};

// The mixer of LFM2: a short convolution between two gates, W_out (c * conv(b * x)). Its state is
// the window of b * x.
class GatedConv {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  GatedConv(const GatedConvShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  GatedConvShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix in_, out_;
  Vector conv_;  // [reach, dim]
};

}  // namespace reprise
