// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/joint_ops.h"
#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/config/rope.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

// What distinguishes the attentions of families, as data.
struct AttentionShape {
  int64_t dim = 0;  // width of the residual stream
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float eps = 0;
  float scale = 0;           // of q . k; 0: 1 / sqrt(head_dim)
  float softcap = 0;         // scores are cap * tanh(score / cap); 0: as they are
  int window = 0;            // tokens that a query sees, itself included; 0: all
  bool bias = false;         // on q, k and v
  bool output_bias = false;  // on the output projection
  bool qk_norm = false;      // RMS norm over each head of q and k, before RoPE
  bool whole_norm = false;   // with it: over all heads of q at once, and over all of k
  bool late_norm = false;    // with it: behind RoPE instead
  ValueForm norm_form = ValueForm::kPlain;
  bool fused = false;                 // the files hold q, k and v in one matrix
  bool sinks = false;                 // AttentionParams::sinks, a weight of each query head
  bool gated = false;                 // sigmoid gate per channel; the q projection has both
  bool rotary_pairs_in_gguf = false;  // GGUF files hold q and k rows for interleaved RoPE
  bool whole_pictures = false;        // rows of a picture see all of it
  QueryGrowth growth;                 // of queries, by their position
  int64_t context_length = 0;         // with it: of all positions
  // Factors of the input, the keys and the output. GGUF files have them in their weights.
  float in_scale = 1;
  float key_scale = 1;
  float out_scale = 1;
  // Names in Hugging Face files: "<hf>.q_proj.weight", "<hf>.<hf_output>.weight",
  // "<hf>.<hf_q_norm>.weight".
  std::string hf = "self_attn";
  std::string hf_output = "o_proj";
  std::string hf_q_norm = "q_norm";
  std::string hf_k_norm = "k_norm";
  float residual_gain = 1;  // synth only: deviation of the output projection
  DType kv = DType::kF16;
};

struct DecoderConfig;
// Sizes, epsilon and residual gain of the decoder, and nothing special.
AttentionShape MakeAttentionShape(const DecoderConfig& config, DType kv);

// Grouped-query causal attention over K/V blocks.
class Attention {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  Attention(const AttentionShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // out = W_o attend(rope(q), rope(k), v); x is already normalised. An empty table turns nothing.
  void Forward(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& out) const;
  // Leaves the K/V that Forward would leave, and nothing else. REQUIRES: k and v are matrices of
  // their own, and their norm, if any, is per head and before RoPE.
  void Store(const Step& step, const RopeTable& rope, const ConstRows& x) const;
  // Adds the multiply-adds of scores and values to the cost of computing a token again.
  void AddCost(StateSpec* state) const;

 private:
  int64_t q_width() const { return int64_t{shape_.q_heads} * shape_.head_dim; }
  int64_t kv_width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }
  void DeclareInputs(TensorPlan* plan);
  // Norms and RoPE of q and k where the op that does both at once has another order.
  void Prepare(const OpContext& context, const RopeTable& rope, const Rows& q, const Rows& k,
               HeadInputs* inputs) const;

  AttentionShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix qkv_;  // fused
  Matrix q_, k_, v_, o_;
  Vector q_bias_, k_bias_, v_bias_, o_bias_;
  Vector q_norm_, k_norm_;
  Vector sinks_;
  Vector growth_;  // factor of each period
};

}  // namespace reprise
