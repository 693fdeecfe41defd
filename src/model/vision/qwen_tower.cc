// SPDX-License-Identifier: Apache-2.0
#include "model/vision/qwen_tower.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/reference/math.h"
#include "model/live_state.h"
#include "model/vision/qwen_look.h"

namespace reprise {
namespace {

constexpr IntRange kSmall{1, 1024};

ConfigKey Key(std::string_view name) { return {name, ""}; }

}  // namespace

Result<std::unique_ptr<QwenTower>> QwenTower::Make(ConfigReader* config, const PatchRules& rules) {
  Shape shape;
  shape.depth = int(config->Int(Key("vision_config.depth"), kSmall));
  shape.dim = config->Int(Key("vision_config.hidden_size"), kAnySize);
  shape.hidden = config->Int(Key("vision_config.intermediate_size"), kAnySize);
  shape.heads = int(config->Int(Key("vision_config.num_heads"), kSmall));
  shape.out = config->Int(Key("vision_config.out_hidden_size"), kAnySize);
  shape.theta = config->Number(Key("vision_config.rope_parameters.rope_theta"), {1, 1e9}, 10000);
  const int64_t positions = config->Int(Key("vision_config.num_position_embeddings"), kAnySize);
  shape.table_side = int(std::lround(std::sqrt(double(positions))));
  const auto must_be = [&](std::string_view name, int64_t wanted, int64_t fallback) {
    const std::string key = "vision_config." + std::string(name);
    const int64_t value = config->Int(Key(key), kAnySize, fallback);
    if (value == wanted) return;
    config->Refuse("a tower with " + std::string(name) + " " + std::to_string(value) +
                   " is not supported where pictures are prepared with " + std::to_string(wanted));
  };
  must_be("patch_size", rules.patch, 16);
  must_be("temporal_patch_size", rules.frames, 2);
  must_be("spatial_merge_size", rules.merge, 2);
  must_be("in_channels", 3, 3);
  const std::string act = config->Text(Key("vision_config.hidden_act"), "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") config->Refuse("a tower with '" + act + "' is not supported");
  if (!config->Ints(Key("vision_config.deepstack_visual_indexes"), 64, {0, 1024}).empty()) {
    config->Refuse("towers with deepstack are not supported");
  }
  if (rules.merge != 1 && rules.merge != 2 && rules.merge != 4) {
    config->Refuse("a tower that merges " + std::to_string(rules.merge) + " x " +
                   std::to_string(rules.merge) + " patches is not supported");
  }
  if (shape.dim % shape.heads != 0 || shape.dim / shape.heads % 4 != 0 ||
      int64_t{shape.table_side} * shape.table_side != positions) {
    config->Refuse("the tower's heads or positions do not divide evenly");
  }
  REPRISE_TRY(config->status());
  std::unique_ptr<QwenTower> tower(new QwenTower(shape));
  tower->card_.family = "qwen3_5";
  tower->card_.rules = rules;
  tower->card_.dim = shape.out;
  return tower;
}

void QwenTower::DeclareTensors(TensorPlan* plan) {
  const Shape& s = shape_;
  const int64_t values = int64_t{3} * card_.rules.frames * card_.rules.patch * card_.rules.patch;
  const int64_t merged = s.dim * card_.rules.merge * card_.rules.merge;
  const auto name = [&](const std::string& hf) { return plan->Global(hf, ""); };
  const auto linear = [&](const std::string& hf, int64_t rows, int64_t cols, Matrix* weight,
                          Vector* bias) {
    plan->AddMatrix(name(hf + ".weight"), rows, cols, weight);
    plan->AddVector(name(hf + ".bias"), rows, bias);
  };
  const auto norm = [&](const std::string& hf, Vector* weight, Vector* bias) {
    plan->AddVector(name(hf + ".weight"), s.dim, weight);
    plan->AddVector(name(hf + ".bias"), s.dim, bias);
  };
  plan->AddVector(name("patch_embed.proj.weight"), s.dim * values, &patch_weights_);
  plan->AddVector(name("patch_embed.proj.bias"), s.dim, &patch_bias_);
  plan->AddVector(name("pos_embed.weight"), int64_t{s.table_side} * s.table_side * s.dim, &table_);
  for (int i = 0; i < s.depth; ++i) {
    Layer& layer = layers_[size_t(i)];
    const std::string block = "blocks." + std::to_string(i) + ".";
    norm(block + "norm1", &layer.norm1, &layer.norm1_bias);
    linear(block + "attn.qkv", 3 * s.dim, s.dim, &layer.qkv, &layer.qkv_bias);
    linear(block + "attn.proj", s.dim, s.dim, &layer.proj, &layer.proj_bias);
    norm(block + "norm2", &layer.norm2, &layer.norm2_bias);
    linear(block + "mlp.linear_fc1", s.hidden, s.dim, &layer.fc1, &layer.fc1_bias);
    linear(block + "mlp.linear_fc2", s.dim, s.hidden, &layer.fc2, &layer.fc2_bias);
  }
  norm("merger.norm", &merge_norm_, &merge_norm_bias_);
  linear("merger.linear_fc1", merged, merged, &merge1_, &merge1_bias_);
  linear("merger.linear_fc2", s.out, merged, &merge2_, &merge2_bias_);
  // Half of a head's angles turn with the row, half with the column, both at the same speeds.
  plan->AddDerived(&frequencies_);
  const int quarter = s.head_dim() / 4;
  for (int f = 0; f < 2 * quarter; ++f) {
    const double exponent = -double(f % quarter) / quarter;
    frequencies_.values().push_back(float(reference::PowDouble(s.theta, exponent)));
    axes_.push_back(f < quarter ? 1 : 2);
  }
}

// The first product is a convolution in the file.
Status QwenTower::CompleteWeights(const OpContext& context) {
  const int64_t cols = int64_t(patch_weights_.size()) / shape_.dim;
  REPRISE_ASSIGN(std::unique_ptr<PackedMatrix> packed,
                 context.backend->MakeMatrix({DType::kF32, 1, shape_.dim, cols}));
  REPRISE_TRY(context.backend->PackMatrix(packed.get(), 0,
                                          reinterpret_cast<const std::byte*>(patch_weights_.data()),
                                          size_t(cols) * sizeof(float)));
  patch_ = Matrix(std::move(packed));
  patch_weights_ = {};
  return OkStatus();
}

Result<std::unique_ptr<VisionTower::Look>> QwenTower::Begin(const OpContext& context,
                                                            const Pixels& pixels) const {
  return QwenLook::Begin(*this, context, pixels);
}

}  // namespace reprise
