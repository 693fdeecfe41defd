// SPDX-License-Identifier: Apache-2.0
#include "model/layers/moe.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "kernels/activation_ops.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kExperts{1, 4096};
constexpr int64_t kExpertsOfModelMax = int64_t{1} << 17;  // over all layers

// The first of `keys` that config.json has; if it has none, that is an error.
ConfigKey FirstPresent(ConfigReader* reader, std::initializer_list<std::string_view> keys,
                       std::string_view gguf) {
  std::string names;
  for (const std::string_view key : keys) {
    if (reader->Has({key, ""})) return {key, gguf};
    names.append(names.empty() ? "" : ", ").append(key);
  }
  if (!reader->gguf()) reader->Refuse("config.json has none of " + names);
  return {*(keys.end() - 1), gguf};
}

// Every row of the file holds one of gate and one of up, in this order: ours are every second one.
void AsHalf(int64_t rows, int64_t half, FusedTensor* fused) {
  fused->rows = 2 * rows;
  fused->parts = {{rows, 1, half, 2}};
}

}  // namespace

MoeMlp::MoeMlp(const MoeShape& shape, int layer) : shape_(shape), layer_(layer) {
  if (shape.shared_hidden == 0) return;
  MlpShape shared;
  shared.dim = shape.dim;
  shared.hidden = shape.shared_hidden;
  shared.residual_gain = shape.residual_gain;
  shared.hf = shape.names.shared;
  shared.gguf = "_shexp";
  shared_.emplace(shared, layer);
}

void MoeMlp::Declare(TensorPlan* plan) {
  const MoeNames& names = shape_.names;
  const int64_t choices = shape_.experts + shape_.identity_experts;
  PlannedTensor& router = plan->AddMatrix(plan->Layer(layer_, names.router, "ffn_gate_inp.weight"),
                                          choices, shape_.dim, &router_);
  router.precise = router.decides = true;
  if (!names.router_bias.empty()) {
    plan->AddVector(plan->Layer(layer_, names.router_bias, "ffn_gate_inp.bias"), choices,
                    &router_bias_)
        .init = {0, 0.1f};
  }
  if (!names.selection_bias.empty()) {
    plan->AddVector(plan->Layer(layer_, names.selection_bias, "exp_probs_b.bias"), choices,
                    &selection_bias_)
        .init = {0, 0.02f};
  }
  if (!names.expert_scale.empty()) {
    plan->AddVector(plan->Layer(layer_, names.expert_scale, "ffn_down_exps.scale"), choices,
                    &expert_scale_)
        .init = {1, 0.1f};
  }
  shape_.alternating || shape_.turned ? DeclareTurned(plan) : DeclareExperts(plan);
  if (!names.gate_up_bias.empty()) DeclareBiases(plan);
  if (shared_) shared_->Declare(plan);
  if (shape_.shared_gated) {
    plan->AddMatrix(plan->Layer(layer_, names.shared_gate, "ffn_gate_inp_shexp.weight"), 1,
                    shape_.dim, &shared_gate_)
        .precise = true;
  }
}

void MoeMlp::DeclareExperts(TensorPlan* plan) {
  const MoeNames& names = shape_.names;
  const int64_t experts = shape_.experts;
  const int64_t hidden = shape_.hidden;
  const int64_t dim = shape_.dim;
  // `fused` is where all experts lie in one tensor, `rows` of each from row `first` on.
  const auto add = [&](const std::string& hf, const char* gguf, const TensorPlan::Name& fused,
                       int64_t fused_rows, int64_t first, int64_t rows, int64_t cols,
                       Matrix* out) -> PlannedTensor& {
    PlannedTensor& tensor =
        plan->AddStack(plan->Layer(layer_, names.experts + ".{}." + hf + ".weight", gguf), experts,
                       rows, cols, out);
    tensor.active = ActiveShare();
    tensor.routed = true;
    tensor.fused = {
        fused.hf, fused.gguf, experts * fused_rows, {{experts, rows, first, fused_rows}}};
    return tensor;
  };
  if (gated()) {
    const TensorPlan::Name both = plan->Layer(layer_, names.gate_up, "ffn_gate_up_exps.weight");
    add(names.gate, "ffn_gate_exps.weight", both, 2 * hidden, 0, hidden, dim, &gate_);
    add(names.up, "ffn_up_exps.weight", both, 2 * hidden, hidden, hidden, dim, &up_);
  } else {
    add(names.up, "ffn_up_exps.weight", {plan->Layer(layer_, names.gate_up, "").hf, ""}, hidden, 0,
        hidden, dim, &up_);
  }
  add(names.down, "ffn_down_exps.weight", {plan->Layer(layer_, names.all_down, "").hf, ""}, dim, 0,
      dim, hidden, &down_)
      .init.deviation *= shape_.residual_gain;
}

void MoeMlp::DeclareTurned(TensorPlan* plan) {
  const int64_t experts = shape_.experts;
  // Every `step`-th row of the whole is one of ours.
  const auto add = [&](const std::string& hf, const char* gguf, int64_t step, int64_t first,
                       int64_t rows, int64_t cols, Matrix* out) -> PlannedTensor& {
    const TensorPlan::Name name = plan->Layer(layer_, hf, gguf);
    PlannedTensor& tensor = plan->AddStack({"", name.gguf, layer_}, experts, rows, cols, out);
    tensor.active = ActiveShare();
    tensor.routed = true;
    tensor.fused = {name.hf, "", experts * cols, {{experts, cols, 0, cols}}, true, step, first};
    if (shape_.turned) return tensor;
    tensor.other_fused = {
        name.hf + "_blocks", "", experts * rows * step, {{experts * rows, 1, first, step}}};
    return tensor;
  };
  const MoeNames& names = shape_.names;
  const int64_t step = shape_.alternating ? 2 : 1;
  PlannedTensor& gate =
      add(names.gate_up, "ffn_gate_exps.weight", step, 0, shape_.hidden, shape_.dim, &gate_);
  if (shape_.turned) AsHalf(experts * shape_.dim, 0, &gate.fused);
  PlannedTensor& up = add(names.gate_up, "ffn_up_exps.weight", step, shape_.turned ? 0 : 1,
                          shape_.hidden, shape_.dim, &up_);
  if (shape_.turned) AsHalf(experts * shape_.dim, 1, &up.fused);
  add(names.all_down, "ffn_down_exps.weight", 1, 0, shape_.dim, shape_.hidden, &down_)
      .init.deviation *= shape_.residual_gain;
}

void MoeMlp::DeclareBiases(TensorPlan* plan) {
  const int64_t experts = shape_.experts;
  const int64_t values = experts * shape_.hidden;
  const auto add = [&](const char* gguf, int64_t first, Vector* out) {
    const TensorPlan::Name name = plan->Layer(layer_, shape_.names.gate_up_bias, gguf);
    PlannedTensor& tensor = plan->AddVector({"", name.gguf, layer_}, 1, out);
    tensor.rows = values;  // of one value each, so that they can alternate
    tensor.routed = true;
    tensor.fused = {name.hf, "", 2 * values, {{values, 1, first, 2}}};
    tensor.gguf_shape = Shape{experts, shape_.hidden};
    tensor.init = {0, 0.1f};
  };
  add("ffn_gate_exps.bias", 0, &gate_bias_);
  add("ffn_up_exps.bias", 1, &up_bias_);
  PlannedTensor& down =
      plan->AddVector(plan->Layer(layer_, shape_.names.down_bias, "ffn_down_exps.bias"),
                      experts * shape_.dim, &down_bias_);
  down.gguf_shape = Shape{experts, shape_.dim};
  down.routed = true;
  down.init = {0, 0.1f * shape_.residual_gain};
}

double MoeMlp::ActiveShare() const {
  return double(std::min<int64_t>(shape_.routing.top_k, shape_.experts)) / double(shape_.experts);
}

void MoeMlp::Forward(const Step& step, const ConstRows& router_x, const ConstRows& x,
                     const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int choices = shape_.experts + shape_.identity_experts;
  const Rows logits = step.MakeRows(x.rows, choices);
  const Projection router[] = {{&router_, logits, router_bias_.data()}};
  Project(context, router_x, router);
  RoutingParams params = shape_.routing;
  params.selection_bias = selection_bias_.data();
  params.expert_scale = expert_scale_.data();
  const Routing routing = RouteExperts(context, logits, params);
  const Step& there = step.OfExperts(layer_);
  if (&there == &step) {
    RunExperts(step, routing, x, out);
    if (shared_) AddShared(step, x, RunShared(step, x), out);
    return;
  }
  // The shared expert computes while the host brings the others their rows.
  const ScratchScope there_scope(*there.context().scratch);
  const Routing moved = Moved(context, routing, there.context());
  const Rows input = there.Bring(step, x);
  const Rows shared = shared_ ? RunShared(step, x) : Rows{};
  const Rows sum = there.MakeRows(x.rows, shape_.dim);
  RunExperts(there, moved, input, sum);
  MoveRows(there.context(), sum, context, out);
  if (shared_) AddShared(step, x, shared, out);
}

void MoeMlp::RunExperts(const Step& step, const Routing& routing, const ConstRows& x,
                        const Rows& out) const {
  const OpContext& context = step.context();
  const ExpertPlan plan = PlanExperts(context, routing, shape_.experts + shape_.identity_experts);
  const Rows slots = step.MakeRows(plan.slots, shape_.dim);
  const Rows gate = step.MakeRows(plan.slots, shape_.hidden);
  const Rows up = gated() ? step.MakeRows(plan.slots, shape_.hidden) : gate;
  const ExpertProjection in[] = {{&up_, up}, {&gate_, gate}};
  const auto inputs = std::span(in).first(gated() ? 2 : 1);
  if (shape_.identity_experts > 0) {
    // Choices behind the experts return their input: it is in their slots from here on.
    GatherRows(context, x, plan.row, slots);
    ProjectExperts(context, plan, slots, ExpertInput::kSlots, inputs);
  } else {
    ProjectExperts(context, plan, x, ExpertInput::kRows, inputs);
  }
  const auto add_bias = [&](const Vector& bias, const Rows& y) {
    if (!bias.empty()) AddExpertBias(context, plan, bias.data(), y);
  };
  add_bias(gate_bias_, gate);
  add_bias(up_bias_, up);
  switch (shape_.activation) {
    case ExpertActivation::kSwiGlu:
      SwiGlu(context, gate, up, gate);
      break;
    case ExpertActivation::kGeGlu:
      GeGlu(context, gate, up, gate);
      break;
    case ExpertActivation::kClampedSwiGlu:
      ClampedSwiGlu(context, gate, up, shape_.alpha, shape_.limit, gate);
      break;
    case ExpertActivation::kReluSquared:
      ReluSquared(context, gate, gate);
      break;
  }
  const ExpertProjection down[] = {{&down_, slots}};
  ProjectExperts(context, plan, gate, ExpertInput::kSlots, down);
  add_bias(down_bias_, slots);
  CombineExperts(context, routing, plan, slots, SumStart::kZero, out);
}

Rows MoeMlp::RunShared(const Step& step, const ConstRows& x) const {
  const Rows y = step.MakeRows(x.rows, shape_.dim);
  shared_->Forward(step, x, y);
  return y;
}

void MoeMlp::AddShared(const Step& step, const ConstRows& x, const Rows& y, const Rows& out) const {
  const OpContext& context = step.context();
  if (!shape_.shared_gated) return Add(context, out, y, out);
  // One expert that every row goes to with the weight sigmoid(w . x).
  const Rows gate = step.MakeRows(x.rows, 1);
  const Projection projection[] = {{&shared_gate_, gate}};
  Project(context, x, projection);
  RoutingParams params;
  params.top_k = 1;
  params.score = ExpertScore::kSigmoid;
  const Routing routing = RouteExperts(context, gate, params);
  CombineExperts(context, routing, PlanExperts(context, routing, 1), y, SumStart::kPresent, out);
}

MoeShape ReadMoeShape(ConfigReader* reader, int64_t dim, float residual_gain, ExpertScore score) {
  MoeShape shape;
  shape.routing.score = score;
  // llama.cpp's numbers; 0: as the family does.
  const int64_t expected = score == ExpertScore::kSoftmax ? 1 : 2;
  const int64_t gating = reader->Int({"", "expert_gating_func"}, {0, 255}, 0);
  if (gating != 0 && gating != expected) {
    reader->Refuse("expert_gating_func " + std::to_string(gating) +
                   " is not supported for this family (only " + std::to_string(expected) + ")");
  }
  shape.dim = dim;
  shape.residual_gain = residual_gain;
  shape.experts =
      int(reader->Int(FirstPresent(reader, {"num_local_experts", "n_routed_experts", "num_experts"},
                                   "expert_count"),
                      kExperts));
  shape.routing.top_k = int(reader->Int(
      FirstPresent(reader,
                   {"num_experts_per_token", "moe_topk", "top_k_experts", "num_experts_per_tok"},
                   "expert_used_count"),
      {1, shape.experts}));
  const bool counted = reader->Has({"num_layers", ""});
  const int64_t layers =
      reader->Int({counted ? "num_layers" : "num_hidden_layers", "block_count"}, {1, 4096}, 1);
  if (shape.experts * layers > kExpertsOfModelMax) {
    reader->Refuse(std::to_string(shape.experts) + " experts in each of " + std::to_string(layers) +
                   " layers are too many");
  }
  const bool own_width = reader->Has({"", "expert_feed_forward_length"});
  shape.hidden = reader->Int(
      FirstPresent(reader, {"moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"},
                   own_width ? "expert_feed_forward_length" : "feed_forward_length"),
      kAnySize);
  return shape;
}

void SetNormalised(ConfigReader* reader, bool normalised, MoeShape* shape) {
  shape->routing.renormalise = normalised;
  if (reader->Bool({"", "expert_weights_norm"}, normalised) != normalised) {
    reader->Refuse(std::string("expert_weights_norm ") + (normalised ? "false" : "true") +
                   " is not supported for this family");
  }
}

void ReadExpertGroups(ConfigReader* reader, MoeShape* shape) {
  RoutingParams& routing = shape->routing;
  routing.groups = int(reader->Int({"n_group", "expert_group_count"}, {1, 64}, 1));
  routing.group_top_k =
      int(reader->Int({"topk_group", "expert_group_used_count"}, {1, routing.groups}, 1));
  routing.renormalise = reader->Bool({"norm_topk_prob", "expert_weights_norm"}, true);
  routing.sum_floor = 1e-20f;
  routing.scale =
      float(reader->Number({"routed_scaling_factor", "expert_weights_scale"}, {1e-6, 1e6}, 1.0));
  if (shape->experts % routing.groups != 0 ||
      routing.group_top_k * (shape->experts / routing.groups) < routing.top_k ||
      (routing.groups > 1 && shape->experts / routing.groups < 2)) {
    reader->Refuse("the groups of experts (n_group, topk_group) do not fit their number");
  }
}

void DescribeExpertGroups(const MoeShape& shape, const std::string& prefix, GgufWriter* out) {
  const RoutingParams& routing = shape.routing;
  constexpr uint32_t kSoftmax = 1, kSigmoid = 2;
  out->Put<uint32_t>(prefix + "expert_gating_func",
                     routing.score == ExpertScore::kSoftmax ? kSoftmax : kSigmoid);
  out->Put<float>(prefix + "expert_weights_scale", routing.scale);
  if (routing.groups == 1) return;
  out->Put<uint32_t>(prefix + "expert_group_count", uint32_t(routing.groups));
  out->Put<uint32_t>(prefix + "expert_group_used_count", uint32_t(routing.group_top_k));
}

std::vector<bool> ReadSparseLayers(ConfigReader* reader, int layer_count) {
  const int64_t step = reader->Int({"decoder_sparse_step", ""}, {1, 4096}, 1);
  const auto dense = reader->Ints({"mlp_only_layers", ""}, 4096, {0, 4096});
  std::vector<bool> sparse;
  for (int i = 0; i < layer_count; ++i) {
    sparse.push_back((i + 1) % step == 0 &&
                     std::find(dense.begin(), dense.end(), i) == dense.end());
  }
  return sparse;
}

void DescribeMoe(const MoeShape& shape, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".";
  out->Put<uint32_t>(prefix + "expert_count", uint32_t(shape.experts));
  out->Put<uint32_t>(prefix + "expert_used_count", uint32_t(shape.routing.top_k));
  out->Put<uint32_t>(prefix + "expert_feed_forward_length", uint32_t(shape.hidden));
  out->Put<bool>(prefix + "expert_weights_norm", shape.routing.renormalise);
  if (shape.shared_hidden != 0) {
    out->Put<uint32_t>(prefix + "expert_shared_feed_forward_length", uint32_t(shape.shared_hidden));
  }
}

std::string DescribeRouting(const MoeShape& shape) {
  const RoutingParams& routing = shape.routing;
  char text[160];
  std::snprintf(text, sizeof(text), " experts %d+%d top %d score %d groups %d/%d norm %d %.9g %.9g",
                shape.experts, shape.identity_experts, routing.top_k, int(routing.score),
                routing.group_top_k, routing.groups, int(routing.renormalise),
                double(routing.sum_floor), double(routing.scale));
  std::string all = text;
  if (shape.activation == ExpertActivation::kClampedSwiGlu) {
    std::snprintf(text, sizeof(text), " clamped %.9g %.9g", double(shape.alpha),
                  double(shape.limit));
    all += text;
  }
  return all;
}

}  // namespace reprise
