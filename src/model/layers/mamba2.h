// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"
#include "state/spec.h"

namespace reprise {

class ConfigReader;
class GgufWriter;

// The mixer of Mamba-2: heads with a scalar decay over matrix states.
struct Mamba2Shape {
  int64_t dim = 0;  // width of the residual stream
  int heads = 0;
  int head_dim = 0;
  int groups = 0;     // heads of a group share input and output vectors
  int state_dim = 0;  // of these vectors
  int reach = 0;      // of the short convolution
  bool norm = true;   // RMS norm of the gated output, per group
  float eps = 0;
  float step_min = 0;  // bounds of the time step
  float step_max = std::numeric_limits<float>::infinity();
  // Factors of the projection's parts (gate, x, B, C, time step) and of the output. GGUF files
  // have them in their weights.
  std::array<float, 5> in_scales = {1, 1, 1, 1, 1};
  float out_scale = 1;
  std::string_view hf_module = "mixer.";
  float residual_gain = 1;  // synth only

  int64_t inner() const { return int64_t{heads} * head_dim; }
  int64_t group_width() const { return int64_t{groups} * state_dim; }
  int64_t conv_width() const { return inner() + 2 * group_width(); }
  // Of the convolution: heads, and what their groups share.
  std::vector<Section> ConvSections() const {
    return {{heads, head_dim}, {groups, state_dim}, {groups, state_dim}};
  }
};

// Names of a family's parameters in config.json; "" where it has none.
struct Mamba2Keys {
  std::string_view state_dim = "mamba_d_state";
  std::string_view heads = "mamba_n_heads";
  std::string_view head_dim = "mamba_d_head";
  std::string_view groups = "mamba_n_groups";
  std::string_view reach = "mamba_d_conv";
  std::string_view bias = "mamba_proj_bias";
  std::string_view conv_bias = "mamba_conv_bias";
  // Of the factor by which all heads together are wider than the stream, where a family has one.
  std::string_view expand = "";
};
// Sizes (head_dim stays as it is where a family has no key for it and the file is no GGUF file);
// biases that nothing here adds are refused.
void ReadMamba2Shape(ConfigReader* reader, const Mamba2Keys& keys, Mamba2Shape* shape);
void DescribeMamba2(const Mamba2Shape& shape, std::string_view architecture, GgufWriter* out);
// Whatever decides the bits besides the tensors.
std::string DescribeNumerics(const Mamba2Shape& shape);

class Mamba2 {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  Mamba2(const Mamba2Shape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  void ScaleInputs(const OpContext& context, const Rows& all) const;

  Mamba2Shape shape_;
  int layer_;
  size_t layer_state_;
  Matrix in_, out_;
  Vector conv_;  // [reach, conv_width]
  Vector conv_bias_;
  Vector step_bias_;  // [heads]
  Vector a_;          // [heads], negative
  Vector skip_;       // [heads]
  Vector norm_;       // [inner]
};

}  // namespace reprise
