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

struct GatedDeltaNetShape {
  int64_t dim = 0;  // width of the residual stream
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;           // of one head
  int value_dim = 0;         // of one head
  int reach = 0;             // of the short convolution
  float eps = 0;             // of the gated norm
  bool tiled_heads = false;  // value heads in the order of GGUF files
  // Hugging Face files hold, per key head, q, k, v and z in one matrix, b and a in another; GGUF
  // files b and a (Qwen3-Next).
  bool joined_inputs = false;
  float residual_gain = 1;  // synth only

  int64_t key_width() const { return int64_t{key_heads} * key_dim; }
  int64_t value_width() const { return int64_t{value_heads} * value_dim; }
  int64_t conv_width() const { return 2 * key_width() + value_width(); }
  // Value heads, so much each, with those of one key head together; and all of the convolution.
  std::vector<Section> ValueSections(int64_t each) const;
  std::vector<Section> ConvSections() const;
};

// The linear-attention mixer of Qwen3-Next and Qwen3.5: a gated delta rule over per-head matrices,
// behind a short causal convolution. Its state is the convolution's window and the matrices.
class GatedDeltaNet {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  GatedDeltaNet(const GatedDeltaNetShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;
  // Adds the multiply-adds of the recurrence to the cost of computing a token again: decay, read,
  // write and query of every matrix.
  void AddCost(StateSpec* state) const {
    state->token_cost += 4.0 * double(shape_.value_width()) * shape_.key_dim;
  }

 private:
  void DeclareInputs(TensorPlan* plan);
  void DeclareJoinedInputs(TensorPlan* plan);

  GatedDeltaNetShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix qkv_, z_, b_, a_, out_;
  Matrix ba_;       // joined inputs: all b, then all a
  Vector conv_;     // [reach, conv_width]
  Vector dt_bias_;  // [value_heads]
  Vector exp_a_;    // [value_heads]
  Vector norm_;     // [value_dim]
};

}  // namespace reprise
