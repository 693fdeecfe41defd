// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/config/reader.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

class GgufWriter;

// What distinguishes the latent attentions of families, as data.
struct MlaShape {
  int64_t dim = 0;  // width of the residual stream
  int heads = 0;
  int q_rank = 0;      // of the compressed queries; 0: they are not compressed
  int kv_rank = 0;     // of the latent that keys and values are made from
  int nope_dim = 0;    // channels of a head's query that meet the latent
  int rope_dim = 0;    // channels that meet the key all heads share; turned where there is RoPE
  int value_dim = 0;   // of one head
  float eps = 1e-6f;   // of the norms of what is compressed, whatever that of the others is
  float q_scale = 1;   // of the queries
  float kv_scale = 1;  // of the latent
  bool rotary_pairs = false;  // the files hold the turning channels for interleaved RoPE
  float residual_gain = 1;    // synth only
  DType kv = DType::kF16;
  std::string hf = "self_attn";
  std::string gguf;  // behind the names, before ".weight"
};

// Multi-head latent attention. What a token leaves behind is its latent and one shared key: the
// state is kv_rank + rope_dim values a token, however many heads there are. Keys and values are
// never made: the matrices that would make them are applied to queries and results instead.
class MlaAttention {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  MlaAttention(const MlaShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised. An empty table turns nothing.
  void Forward(const Step& step, const RopeTable& rope, const ConstRows& x, const Rows& out) const;
  // Leaves the state that Forward leaves, and nothing else.
  void Store(const Step& step, const RopeTable& rope, const ConstRows& x) const;

 private:
  int64_t q_width() const { return int64_t{shape_.heads} * (shape_.nope_dim + shape_.rope_dim); }
  int64_t latent_width() const { return int64_t{shape_.kv_rank} + shape_.rope_dim; }
  KvShape kv_shape() const;
  Rows MakeQueries(const Step& step, const ConstRows& x) const;
  // Queries in the space of the latent: [rows, heads * latent_width()].
  Rows Absorb(const Step& step, const RopeTable& rope, const ConstRows& q) const;

  MlaShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix q_, q_a_, q_b_, kv_a_, o_;
  Matrix k_b_;  // [heads] of [kv_rank, nope_dim]
  Matrix v_b_;  // [heads] of [value_dim, kv_rank]
  Vector q_norm_, kv_norm_;
};

// Ranks and widths; errors stick to the reader.
void ReadMlaShape(ConfigReader* reader, MlaShape* shape);
void DescribeMla(const MlaShape& shape, std::string_view architecture, GgufWriter* out);

}  // namespace reprise
