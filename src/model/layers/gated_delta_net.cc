// SPDX-License-Identifier: Apache-2.0
#include "model/layers/gated_delta_net.h"

#include <cmath>

#include "kernels/joint_ops.h"

namespace reprise {
namespace {

// Added to the sum of squares when queries and keys are normalised; fixed by the published models,
// not configured.
constexpr float kL2Eps = 1e-6f;

}  // namespace

std::vector<Section> GatedDeltaNetShape::ValueSections(int64_t each) const {
  const int64_t group = value_heads / key_heads;
  if (!tiled_heads) return {{key_heads, group * each}};
  return std::vector<Section>(size_t(group), Section{key_heads, each});
}

std::vector<Section> GatedDeltaNetShape::ConvSections() const {
  std::vector<Section> sections = {{key_heads, key_dim}, {key_heads, key_dim}};
  for (const Section& values : ValueSections(value_dim)) sections.push_back(values);
  return sections;
}

LayerState GatedDeltaNet::state() const {
  const std::vector<int64_t> delta = {shape_.value_heads, shape_.key_dim, shape_.value_dim};
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv", {shape_.reach - 1, shape_.conv_width()}, DType::kF32, shape_.ConvSections()},
           {"delta", delta, DType::kF32,
            shape_.ValueSections(int64_t{shape_.key_dim} * shape_.value_dim)}}};
}

void GatedDeltaNet::DeclareJoinedInputs(TensorPlan* plan) {
  const int64_t keys = shape_.key_heads;
  const int64_t key = shape_.key_dim;
  const int64_t value = shape_.value_width() / keys;  // rows of the values of one key head
  const int64_t stride = 2 * key + 2 * value;
  const TensorPlan::Name joined =
      plan->Layer(layer_, "linear_attn.in_proj_qkvz.weight", "ssm_in.weight");
  PlannedTensor& qkv = plan->AddMatrix(plan->Layer(layer_, "", "attn_qkv.weight"),
                                       shape_.conv_width(), shape_.dim, &qkv_);
  qkv.hf.clear();
  qkv.fused = {joined.hf,
               joined.gguf,
               keys * stride,
               {{keys, key, 0, stride}, {keys, key, key, stride}, {keys, value, 2 * key, stride}}};
  qkv.sections = shape_.ConvSections();
  PlannedTensor& z = plan->AddMatrix(plan->Layer(layer_, "", "attn_gate.weight"),
                                     shape_.value_width(), shape_.dim, &z_);
  z.hf.clear();
  z.fused = {joined.hf, joined.gguf, keys * stride, {{keys, value, 2 * key + value, stride}}};
  z.sections = shape_.ValueSections(shape_.value_dim);
  PlannedTensor& ba =
      plan->AddMatrix(plan->Layer(layer_, "linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
                      2 * shape_.value_heads, shape_.dim, &ba_);
  ba.decides = true;
  ba.sections = shape_.ValueSections(1);
  for (const Section& gates : shape_.ValueSections(1)) ba.sections.push_back(gates);
  ba.head_rows = {HeadOrder::kQueryGate, false, 0,
                  shape_.key_heads,      0,     shape_.value_heads / shape_.key_heads};
}

void GatedDeltaNet::DeclareInputs(TensorPlan* plan) {
  const int64_t dim = shape_.dim;
  const int heads = shape_.value_heads;
  const auto name = [&](const char* hf, const char* gguf) { return plan->Layer(layer_, hf, gguf); };
  // Value heads in the order of the file: `head_rows` rows each, from row `first` on.
  const auto by_head = [&](PlannedTensor& tensor, int64_t first, int64_t head_rows, bool columns) {
    tensor.head_rows = {HeadOrder::kValueHeads, columns, first, heads, shape_.key_heads, head_rows};
  };
  PlannedTensor& qkv =
      plan->AddMatrix(name("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
                      shape_.conv_width(), dim, &qkv_);
  qkv.sections = shape_.ConvSections();
  by_head(qkv, 2 * shape_.key_width(), shape_.value_dim, false);
  PlannedTensor& z = plan->AddMatrix(name("linear_attn.in_proj_z.weight", "attn_gate.weight"),
                                     shape_.value_width(), dim, &z_);
  z.sections = shape_.ValueSections(shape_.value_dim);
  by_head(z, 0, shape_.value_dim, false);
  const auto gate = [&](const char* hf, const char* gguf, Matrix* out) {
    PlannedTensor& tensor = plan->AddMatrix(name(hf, gguf), heads, dim, out);
    tensor.decides = true;
    tensor.sections = shape_.ValueSections(1);
    by_head(tensor, 0, 1, false);
  };
  gate("linear_attn.in_proj_b.weight", "ssm_beta.weight", &b_);
  gate("linear_attn.in_proj_a.weight", "ssm_alpha.weight", &a_);
}

void GatedDeltaNet::Declare(TensorPlan* plan) {
  const int heads = shape_.value_heads;
  const auto name = [&](const char* hf, const char* gguf) { return plan->Layer(layer_, hf, gguf); };
  const auto by_head = [&](PlannedTensor& tensor, int64_t first, int64_t head_rows, bool columns) {
    // Files of Qwen3-Next keep the order of Hugging Face.
    if (shape_.joined_inputs) return;
    tensor.head_rows = {HeadOrder::kValueHeads, columns, first, heads, shape_.key_heads, head_rows};
  };
  if (shape_.joined_inputs) {
    DeclareJoinedInputs(plan);
  } else {
    DeclareInputs(plan);
  }
  PlannedTensor& conv =
      plan->AddVector(name("linear_attn.conv1d.weight", "ssm_conv1d.weight"), shape_.reach, &conv_);
  conv.rows = shape_.conv_width();
  conv.transposed = true;
  conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  by_head(conv, 2 * shape_.key_width(), shape_.value_dim, false);

  PlannedTensor& dt = plan->AddVector(name("linear_attn.dt_bias", "ssm_dt.bias"), heads, &dt_bias_);
  dt.init = {-3, 1};
  by_head(dt, 0, 1, true);
  PlannedTensor& a = plan->AddVector(name("linear_attn.A_log", "ssm_a"), heads, &exp_a_);
  a.values = ValueForm::kNegatedExp;
  a.init = {1, 0.7f};
  by_head(a, 0, 1, true);
  plan->AddNorm(name("linear_attn.norm.weight", "ssm_norm.weight"), shape_.value_dim,
                ValueForm::kPlain, &norm_);
  PlannedTensor& out = plan->AddMatrix(name("linear_attn.out_proj.weight", "ssm_out.weight"),
                                       shape_.dim, shape_.value_width(), &out_);
  out.init.deviation *= shape_.residual_gain;
  by_head(out, 0, shape_.value_dim, true);
}

void GatedDeltaNet::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const Rows qkv = step.MakeRows(shape_.conv_width());
  const Rows z = step.MakeRows(shape_.value_width());
  const Rows ba = step.MakeRows(2 * shape_.value_heads);
  const Rows b = Columns(ba, 0, shape_.value_heads);
  const Rows a = Columns(ba, shape_.value_heads, shape_.value_heads);
  if (shape_.joined_inputs) {
    const Projection inputs[] = {{&qkv_, qkv}, {&z_, z}, {&ba_, ba}};
    Project(context, x, inputs);
  } else {
    const Projection inputs[] = {{&qkv_, qkv}, {&z_, z}, {&b_, b}, {&a_, a}};
    Project(context, x, inputs);
  }

  GatedDeltaLayer layer;
  layer.shape = {shape_.key_heads, shape_.value_heads, shape_.key_dim, shape_.value_dim,
                 shape_.tiled_heads};
  layer.reach = shape_.reach;
  layer.conv_offset = step.StateOffset(layer_state_, 0);
  layer.delta_offset = step.StateOffset(layer_state_, 1);
  layer.conv = conv_.data();
  layer.exp_a = exp_a_.data();
  layer.dt_bias = dt_bias_.data();
  layer.norm = norm_.data();
  layer.l2_eps = kL2Eps;
  layer.norm_eps = shape_.eps;
  const Rows y = step.MakeRows(shape_.value_width());
  GatedDeltaMix(context, step.layout(), layer, qkv, a, b, z, y);
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
}

}  // namespace reprise
