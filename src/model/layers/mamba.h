// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

// The mixer of Mamba: a state space whose step, input and output depend on the token.
struct MambaShape {
  enum class Norms : uint8_t { kNone, kPlain, kLearned };

  int64_t dim = 0;             // width of the residual stream
  int64_t inner = 0;           // channels of the scan
  int state_dim = 0;           // of one channel
  int rank = 0;                // of the projection of time steps
  int reach = 0;               // of the short convolution
  Norms norms = Norms::kNone;  // RMS norms of time step, input and output vectors
  float norm_eps = 0;
  std::string_view hf_module = "mixer.";
  float residual_gain = 1;  // synth only
};

// Names of a family's parameters in config.json.
struct MambaKeys {
  std::string_view state_dim = "state_size";
  std::string_view rank = "time_step_rank";
  std::string_view reach = "conv_kernel";
  std::string_view expand = "expand";
  std::string_view inner = "intermediate_size";  // empty: expand * dim
  std::string_view bias = "use_bias";
  std::string_view conv_bias = "use_conv_bias";
};
// Sizes; biases that nothing here adds are refused. `shape->dim` is set.
void ReadMambaShape(ConfigReader* reader, const MambaKeys& keys, MambaShape* shape);
void DescribeMamba(const MambaShape& shape, std::string_view architecture, GgufWriter* out);

class Mamba {
 public:
  // `layer_state` is the index of its state in the model's StateSpec.
  Mamba(const MambaShape& shape, int layer, size_t layer_state)
      : shape_(shape), layer_(layer), layer_state_(layer_state) {}

  LayerState state() const;
  void AddCost(StateSpec* state) const;
  void Declare(TensorPlan* plan);
  void CompleteWeights();
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const;

 private:
  int64_t mixed_width() const { return shape_.rank + 2 * int64_t{shape_.state_dim}; }

  MambaShape shape_;
  int layer_;
  size_t layer_state_;
  Matrix in_, mix_, step_, out_;
  Vector conv_;  // [reach, inner]
  Vector conv_bias_, step_bias_;
  Vector a_;     // [state_dim, inner], negative
  Vector skip_;  // [inner]
  Vector step_norm_, b_norm_, c_norm_;
};

}  // namespace reprise
