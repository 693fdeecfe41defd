// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/expert_ops.h"
#include "kernels/ops.h"
#include "kernels/vector.h"
#include "model/config/reader.h"
#include "model/layers/mlp.h"
#include "model/layers/step.h"
#include "model/tensor_plan.h"

namespace reprise {

class GgufWriter;

// kReluSquared: without a gate. kClampedSwiGlu: MoeShape's alpha and limit.
enum class ExpertActivation : uint8_t { kSwiGlu, kGeGlu, kReluSquared, kClampedSwiGlu };

// Names in Hugging Face files, behind "layers.<n>.". Experts lie in a tensor each
// ("<experts>.<number>.<up>.weight") or in one for all ("<gate_up>" and "<all_down>", where a
// family has them). GGUF has one set of names for all.
struct MoeNames {
  std::string router = "mlp.gate.weight";
  std::string selection_bias;  // "" where there is none, here and below
  std::string router_bias;
  std::string expert_scale;  // [experts], RoutingParams::expert_scale
  std::string gate_up_bias;  // [experts, 2 hidden]
  std::string down_bias;     // [experts, dim]
  std::string experts = "mlp.experts";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
  std::string gate_up = "mlp.experts.gate_up_proj";  // [experts, 2 hidden, dim], gate first
  std::string all_down = "mlp.experts.down_proj";    // [experts, dim, hidden]
  std::string shared = "mlp.shared_expert";
  std::string shared_gate = "mlp.shared_expert_gate.weight";
};

// What distinguishes the mixtures of experts of families, as data.
struct MoeShape {
  int64_t dim = 0;
  int experts = 0;
  int identity_experts = 0;  // further choices of the router that return their input
  int64_t hidden = 0;        // of an expert
  ExpertActivation activation = ExpertActivation::kSwiGlu;
  float alpha = 1;  // kClampedSwiGlu
  float limit = 0;
  RoutingParams routing;      // its selection_bias is set by the layer
  int64_t shared_hidden = 0;  // of the expert that sees every token; 0: there is none
  bool shared_gated = false;  // its output is multiplied by sigmoid(w . x)
  // Hugging Face files have all experts in one tensor whose rows of gate and up alternate: turned,
  // [experts, dim, 2 hidden], or in MXFP4 as it is ("<name>_blocks"). So has the bias.
  bool alternating = false;
  // They have all experts in two tensors that are turned: [experts, dim, 2 hidden], gate first, and
  // [experts, hidden, dim].
  bool turned = false;
  float residual_gain = 1;  // synth only
  MoeNames names;
};

// A mixture of experts: every row goes to the few experts its router chooses. Rows are brought
// together by expert, so a step reads the weights of each chosen expert once; what a row gets
// depends on that row alone.
class MoeMlp {
 public:
  MoeMlp(const MoeShape& shape, int layer);

  void Declare(TensorPlan* plan);
  // x is already normalised.
  void Forward(const Step& step, const ConstRows& x, const Rows& out) const {
    Forward(step, x, x, out);
  }
  // The same where the router sees something else.
  void Forward(const Step& step, const ConstRows& router_x, const ConstRows& x,
               const Rows& out) const;

 private:
  // out: what the experts of every row add up to.
  void RunExperts(const Step& step, const Routing& routing, const ConstRows& x,
                  const Rows& out) const;
  // What the shared expert makes of the rows; it is added to `out` last.
  Rows RunShared(const Step& step, const ConstRows& x) const;
  void AddShared(const Step& step, const ConstRows& x, const Rows& y, const Rows& out) const;
  bool gated() const { return shape_.activation != ExpertActivation::kReluSquared; }
  void DeclareExperts(TensorPlan* plan);
  void DeclareTurned(TensorPlan* plan);
  void DeclareBiases(TensorPlan* plan);
  double ActiveShare() const;  // of the experts that a row goes to

  MoeShape shape_;
  int layer_;
  Matrix router_;
  Vector router_bias_, selection_bias_, expert_scale_;
  Matrix gate_, up_, down_;                 // stacks of [experts]
  Vector gate_bias_, up_bias_, down_bias_;  // [experts, rows], or none
  std::optional<GatedMlp> shared_;
  Matrix shared_gate_;
};

// The parameters of a mixture that both formats name alike for most families: number of experts,
// how many a token goes to, their width. Errors stick to the reader.
MoeShape ReadMoeShape(ConfigReader* reader, int64_t dim, float residual_gain,
                      ExpertScore score = ExpertScore::kSoftmax);
// For families that always, or never, divide the weights of the chosen by their sum; a GGUF file
// that wants it otherwise is refused.
void SetNormalised(ConfigReader* reader, bool normalised, MoeShape* shape);
// Sigmoid scores in groups, as many families of 2025 have them: n_group, topk_group, norm_topk_prob
// and routed_scaling_factor. Errors stick to the reader.
void ReadExpertGroups(ConfigReader* reader, MoeShape* shape);
// The same as metadata of a GGUF file, under `prefix`; norm_topk_prob is in DescribeMoe.
void DescribeExpertGroups(const MoeShape& shape, const std::string& prefix, GgufWriter* out);
// Which layers have experts: every decoder_sparse_step-th, but not those of mlp_only_layers; all of
// a GGUF file.
std::vector<bool> ReadSparseLayers(ConfigReader* reader, int layer_count);
// The same parameters as metadata of a GGUF file.
void DescribeMoe(const MoeShape& shape, std::string_view architecture, GgufWriter* out);
// Whatever decides the bits besides the tensors.
std::string DescribeRouting(const MoeShape& shape);

}  // namespace reprise
