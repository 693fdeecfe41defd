// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/families/gemma4/config.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

// The attention of one layer of Gemma 4: scores are not scaled, values are normed without a
// weight. A layer may have no K/V of its own; it then attends to those of an earlier one.
class Gemma4Attention {
 public:
  // `layer_state`: of the layer's own K/V, or of the ones that it attends to.
  Gemma4Attention(const Gemma4Config& config, int layer, size_t layer_state, DType kv);

  LayerState state() const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised. `there`: the step where the K/V lie that it attends to.
  void Forward(const Step& step, const Step& there, const RopeTable& rope, const ConstRows& x,
               const Rows& out) const;
  // Adds the multiply-adds of scores and values to the cost of computing a token again.
  void AddCost(StateSpec* state) const;

 private:
  int64_t q_width() const { return int64_t{q_heads_} * heads_.head_dim; }
  int64_t kv_width() const { return int64_t{heads_.kv_heads} * heads_.head_dim; }
  // K and V of the step's tokens to the state, q ready for Attend.
  void Store(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& q) const;
  void Query(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& q) const;

  const int layer_;
  const size_t layer_state_;
  const Gemma4Heads heads_;
  const int64_t dim_;
  const int q_heads_;
  const int window_;
  const bool shares_;
  const bool value_is_key_;
  const bool whole_pictures_;
  const float eps_;
  const float residual_gain_;
  const KvShape kv_;
  Matrix q_, k_, v_, o_;
  Vector q_norm_, k_norm_;
  Vector ones_;  // [head_dim], the weight of the values' norm
};

}  // namespace reprise
