// SPDX-License-Identifier: Apache-2.0
#include "model/layers/mamba2.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/activation_ops.h"
#include "kernels/scan_ops.h"
#include "model/config/reader.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kHeads{1, 4096};
constexpr IntRange kHeadDim{1, 4096};

}  // namespace

void ReadMamba2Shape(ConfigReader* reader, const Mamba2Keys& keys, Mamba2Shape* shape) {
  shape->heads = int(reader->Int({keys.heads, "ssm.time_step_rank"}, kHeads));
  shape->groups = int(reader->Int({keys.groups, "ssm.group_count"}, kHeads));
  shape->state_dim = int(reader->Int({keys.state_dim, "ssm.state_size"}, kHeadDim));
  shape->reach = int(reader->Int({keys.reach, "ssm.conv_kernel"}, {2, 16}));
  if (reader->gguf()) {
    const int64_t inner = reader->Int({"", "ssm.inner_size"}, kAnySize);
    if (inner % shape->heads != 0 || inner / shape->heads > kHeadDim.max) {
      reader->Refuse("ssm.inner_size " + std::to_string(inner) + " does not divide into " +
                     std::to_string(shape->heads) + " heads");
    }
    shape->head_dim = int(std::clamp<int64_t>(inner / shape->heads, 1, kHeadDim.max));
  } else if (!keys.head_dim.empty()) {
    shape->head_dim = int(reader->Int({keys.head_dim, ""}, kHeadDim));
  }
  if (shape->heads % shape->groups != 0) {
    reader->Refuse(std::to_string(shape->heads) + " Mamba heads cannot share " +
                   std::to_string(shape->groups) + " groups evenly");
  }
  const std::vector<double> limit = reader->Numbers({"time_step_limit", "ssm.time_step_limit"}, 2);
  if (limit.size() == 2) {
    shape->step_min = float(limit[0]);
    shape->step_max = float(limit[1]);
  } else if (!limit.empty()) {
    reader->Refuse("time_step_limit does not have two numbers");
  }
  if (!keys.expand.empty() && reader->Has({keys.expand, ""}) &&
      reader->Number({keys.expand, ""}, {1e-3, 1e3}) * double(shape->dim) !=
          double(shape->inner())) {
    reader->Refuse(std::string(keys.expand) + " times the width is not that of the Mamba heads, " +
                   std::to_string(shape->inner()));
  }
  if (reader->Bool({keys.bias, ""}, false)) {
    reader->Refuse("Mamba layers with biases on their projections (" + std::string(keys.bias) +
                   ") are not supported");
  }
  if (!reader->Bool({keys.conv_bias, ""}, true)) {
    reader->Refuse("Mamba layers without a bias on the convolution (" +
                   std::string(keys.conv_bias) + ") are not supported");
  }
}

void DescribeMamba2(const Mamba2Shape& shape, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".ssm.";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  put("conv_kernel", shape.reach);
  put("inner_size", shape.inner());
  put("state_size", shape.state_dim);
  put("time_step_rank", shape.heads);
  put("group_count", shape.groups);
  // Not known to llama.cpp, and not needed by any published model.
  if (shape.step_min > 0 || !std::isinf(shape.step_max)) {
    const float limit[] = {shape.step_min, shape.step_max};
    out->PutArray<float>(prefix + "time_step_limit", limit);
  }
}

std::string DescribeNumerics(const Mamba2Shape& shape) {
  char text[160];
  std::snprintf(text, sizeof(text), "mamba2 step %.9g %.9g scales %.9g %.9g %.9g %.9g %.9g %.9g",
                double(shape.step_min), double(shape.step_max), double(shape.in_scales[0]),
                double(shape.in_scales[1]), double(shape.in_scales[2]), double(shape.in_scales[3]),
                double(shape.in_scales[4]), double(shape.out_scale));
  return text;
}

LayerState Mamba2::state() const {
  return {layer_,
          StateKind::kRecurrent,
          0,
          {{"conv", {shape_.reach - 1, shape_.conv_width()}, DType::kF32, shape_.ConvSections()},
           {"ssm", {shape_.heads, shape_.state_dim, shape_.head_dim}, DType::kF32}}};
}

void Mamba2::AddCost(StateSpec* state) const {
  // Decay, write and read of every matrix.
  state->token_cost += 3.0 * double(shape_.inner()) * shape_.state_dim;
}

void Mamba2::Declare(TensorPlan* plan) {
  const int64_t inner = shape_.inner();
  const auto name = [&](const char* hf, const char* gguf) {
    return plan->Layer(layer_, std::string(shape_.hf_module) + hf, gguf);
  };
  PlannedTensor& in = plan->AddMatrix(name("in_proj.weight", "ssm_in.weight"),
                                      inner + shape_.conv_width() + shape_.heads, shape_.dim, &in_);
  in.sections = shape_.ConvSections();
  in.sections.insert(in.sections.begin(), Section{shape_.heads, shape_.head_dim});
  in.sections.push_back({shape_.heads, 1});
  in.gguf_factors = {{inner, shape_.in_scales[0]},
                     {inner, shape_.in_scales[1]},
                     {shape_.group_width(), shape_.in_scales[2]},
                     {shape_.group_width(), shape_.in_scales[3]},
                     {shape_.heads, shape_.in_scales[4]}};
  PlannedTensor& conv =
      plan->AddVector(name("conv1d.weight", "ssm_conv1d.weight"), shape_.reach, &conv_);
  conv.rows = shape_.conv_width();
  conv.transposed = true;
  conv.init = {0, 1 / std::sqrt(float(shape_.reach))};
  plan->AddVector(name("conv1d.bias", "ssm_conv1d.bias"), shape_.conv_width(), &conv_bias_).init = {
      0, 0.1f};
  plan->AddVector(name("dt_bias", "ssm_dt.bias"), shape_.heads, &step_bias_).init = {-3, 1};
  PlannedTensor& a = plan->AddVector(name("A_log", "ssm_a"), 1, &a_);
  a.rows = shape_.heads;
  a.values = ValueForm::kNegatedExp;
  a.init = {1, 0.7f};
  PlannedTensor& skip = plan->AddVector(name("D", "ssm_d"), 1, &skip_);
  skip.rows = shape_.heads;
  skip.init = {1, 0.1f};
  if (shape_.norm) {
    plan->AddNorm(name("norm.weight", "ssm_norm.weight"), inner / shape_.groups, ValueForm::kPlain,
                  &norm_)
        .rows = shape_.groups;
  }
  PlannedTensor& out =
      plan->AddMatrix(name("out_proj.weight", "ssm_out.weight"), shape_.dim, inner, &out_);
  out.init.deviation *= shape_.residual_gain;
  out.gguf_factors = {{shape_.dim, shape_.out_scale}};
}

void Mamba2::CompleteWeights() {
  for (float& a : a_.values()) a = -a;
}

void Mamba2::ScaleInputs(const OpContext& context, const Rows& all) const {
  const int64_t widths[] = {shape_.inner(), shape_.inner(), shape_.group_width(),
                            shape_.group_width(), shape_.heads};
  int64_t at = 0;
  for (size_t i = 0; i < 5; ++i) {
    const Rows part = Columns(all, at, widths[i]);
    if (shape_.in_scales[i] != 1) Scale(context, part, shape_.in_scales[i], part);
    at += widths[i];
  }
}

void Mamba2::Forward(const Step& step, const ConstRows& x, const Rows& out) const {
  const OpContext& context = step.context();
  ScratchScope scope(*context.scratch);
  const int64_t inner = shape_.inner();
  const int64_t conv_width = shape_.conv_width();
  const Rows all = step.MakeRows(inner + conv_width + shape_.heads);
  const Projection input[] = {{&in_, all}};
  Project(context, x, input);
  ScaleInputs(context, all);

  const Rows mixed = step.MakeRows(conv_width);
  ShortConv(context, step.layout(), step.StateOffset(layer_state_, 0), conv_.data(),
            conv_bias_.data(), shape_.reach, /*silu=*/true, Columns(all, inner, conv_width), mixed);
  const Rows dt = step.MakeRows(shape_.heads);
  const Rows decay = step.MakeRows(shape_.heads);
  SsdGates(context, Columns(all, inner + conv_width, shape_.heads), step_bias_.data(), a_.data(),
           shape_.step_min, shape_.step_max, dt, decay);
  const SsdShape shape{shape_.heads, shape_.groups, shape_.state_dim, shape_.head_dim};
  const Rows y = step.MakeRows(inner);
  Ssd(context, step.layout(), step.StateOffset(layer_state_, 1), shape, Columns(mixed, 0, inner),
      Columns(mixed, inner, shape_.group_width()),
      Columns(mixed, inner + shape_.group_width(), shape_.group_width()), dt, decay, skip_.data(),
      y);
  const Rows z = Columns(all, 0, inner);
  if (shape_.norm) {
    GateRmsNorm(context, y, z, norm_.data(), shape_.groups, shape_.eps, y);
  } else {
    SwiGlu(context, z, y, y);
  }
  const Projection output[] = {{&out_, out}};
  Project(context, y, output);
  if (shape_.out_scale != 1) Scale(context, out, shape_.out_scale, out);
}

}  // namespace reprise
