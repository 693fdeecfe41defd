// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

// The gated feed-forward block: W_down (silu(W_gate x) * W_up x).
class SwiGluMlp {
 public:
  SwiGluMlp(int layer, int64_t dim, int64_t hidden, float residual_gain)
      : layer_(layer), dim_(dim), hidden_(hidden), residual_gain_(residual_gain) {}

  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const Rows& x, const Rows& out) const;

 private:
  int layer_;
  int64_t dim_;
  int64_t hidden_;
  float residual_gain_;  // synth only: deviation of the down projection
  Matrix gate_, up_, down_;
};

}  // namespace reprise
