// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/families/zamba2/config.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

// A block of attention and feed-forward that several layers of Zamba2 use: one set of matrices, and
// for each use a product of two thin ones that is added to them, and K/V of its own. It lies where
// the first layer that uses it lies, K/V of all uses included.
class Zamba2Block {
 public:
  Zamba2Block(const Zamba2Config& config, int layer, DType kv);

  // Another use, whose K/V are the layer state of that index; `use` counts those of all blocks.
  void AddUse(int use, size_t layer_state);
  int layer() const { return layer_; }
  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  // out = feed-forward(norm(attention(norm([x | first])))); out: [rows, dim].
  void Forward(const Step& step, const RopeTable& rope, int use, const ConstRows& x,
               const ConstRows& first, const Rows& out) const;

 private:
  struct Pair {
    Matrix down, up;  // up * down * x is added
  };
  struct Use {
    int number = 0;
    size_t layer_state = 0;
    std::array<Pair, 3> heads = {};  // of q, k and v, where they have some
    Pair gate_up = {};
  };

  int64_t q_width() const { return int64_t{config_.decoder.q_heads} * config_.decoder.head_dim; }
  int64_t kv_width() const { return int64_t{config_.decoder.kv_heads} * config_.decoder.head_dim; }
  void DeclareUse(TensorPlan* plan, Use* use);
  void Attention(const Step& step, const RopeTable& rope, const Use& use, const ConstRows& x,
                 const Rows& out) const;
  void FeedForward(const Step& step, const Use& use, const ConstRows& x, const Rows& out) const;

  const Zamba2Config config_;
  const int layer_;
  const KvShape kv_;
  Vector input_norm_, mlp_norm_;
  Matrix q_, k_, v_, o_;
  Matrix gate_up_, down_;
  std::vector<Use> uses_;
};

}  // namespace reprise
