// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

struct SharedKvShape {
  int64_t dim = 0;  // width of the residual stream
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;               // tokens that a query sees, itself included; 0: all
  bool shares = false;          // attends to K/V of an earlier layer
  bool value_is_key = false;    // values are keys before their norm and RoPE
  bool whole_pictures = false;  // rows of a picture see all of it
  float eps = 0;
  float residual_gain = 1;  // synth only
  DType kv = DType::kF16;
};

// The attention of one layer of Gemma 3n and Gemma 4: scores are not scaled, values are normed
// without a weight. A layer may have no K/V of its own; it then attends to those of an earlier one.
class SharedKvAttention {
 public:
  // `layer_state`: of the layer's own K/V, or of the ones that it attends to.
  SharedKvAttention(const SharedKvShape& shape, int layer, size_t layer_state);

  LayerState state() const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised. `there`: the step where the K/V lie that it attends to.
  void Forward(const Step& step, const Step& there, const RopeTable& rope, const ConstRows& x,
               const Rows& out) const;
  // Adds the multiply-adds of scores and values to the cost of computing a token again.
  void AddCost(StateSpec* state) const;

 private:
  int64_t q_width() const { return int64_t{shape_.q_heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }
  // K and V of the step's tokens to the state, q ready for Attend.
  void Store(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& q) const;
  void Query(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& q) const;

  SharedKvShape shape_;
  int layer_;
  size_t layer_state_;
  KvShape kv_;
  Matrix q_, k_, v_, o_;
  Vector q_norm_, k_norm_;
  Vector ones_;  // [head_dim], the weight of the values' norm
};

}  // namespace reprise
