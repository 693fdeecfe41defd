// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/config/decoder.h"
#include "model/family.h"
#include "model/layers/step.h"
#include "model/layers/vocabulary.h"

namespace reprise::rwkv7 {

struct Config {
  DecoderConfig decoder;
  int heads = 0;
  int head_dim = 0;
  int decay_rank = 0;
  int rate_rank = 0;
  int value_rank = 0;
  int gate_rank = 0;
};

// A map through a narrow middle: W_up f(W_down x).
struct LowRank {
  Matrix down, up;
  Vector bias;  // added to the result; empty: none
};

struct Norm {
  Vector weight, bias;
};

// One layer: mixing over time (a matrix state per head, replaced key by key) and over channels.
class Layer {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  Layer(const Config& config, int layer, size_t layer_state)
      : config_(config), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void Declare(TensorPlan* plan);
  // x += time mixing + channel mixing. The first layer writes its values to `first_values`, the
  // others read them.
  void Forward(const Step& step, const Rows& x, const Rows& first_values) const;

 private:
  void DeclareTimeMixing(TensorPlan* plan);
  void DeclareLowRank(TensorPlan* plan, const char* hf, const char* gguf, int64_t rank, bool bias,
                      LowRank* out);
  void MixTime(const Step& step, const Rows& x, const Rows& first_values, const Rows& out) const;
  void MixChannels(const Step& step, const ConstRows& x, const Rows& out) const;
  // What time mixing takes of every row, in the order of the shifts.
  struct TimeRows {
    Rows r, w, k, v, a, g;
  };
  // The projections of the shifted inputs: two passes for all of them. w, a, g and `share` (of the
  // first layer's values, where this is not the first) come through a narrow middle and are before
  // their biases.
  void ProjectTime(const Step& step, const TimeRows& x, const TimeRows& out,
                   const Rows& share) const;
  bool mixes_values() const { return layer_ != 0; }

  const Config& config_;
  int layer_;
  size_t layer_state_;
  Norm time_norm_, channel_norm_, head_norm_;
  Vector shift_;  // [6, dim]: r, w, k, v, a, g
  LowRank decay_, rate_, value_, gate_;
  Vector key_scale_, key_rate_, bonus_;  // k_k, k_a, r_k
  Matrix r_, k_, v_, o_;
  Vector channel_shift_;
  Matrix channel_key_, channel_value_;
  Vector zeros_;
};

class Rwkv7 final : public FamilyModel {
 public:
  explicit Rwkv7(const Config& config);

  void DeclareTensors(TensorPlan* plan) override;
  std::string DescribeNumerics() const override { return "rwkv7"; }
  void DescribeGguf(GgufWriter* out) const override;
  void Run(const Step& home, const StepResults& results) const override;

 private:
  Config config_;
  Vocabulary vocabulary_;
  Norm embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace reprise::rwkv7
