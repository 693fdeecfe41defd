// SPDX-License-Identifier: Apache-2.0
#include "model/vision/qwen_tower.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "kernels/reference/math.h"
#include "model/vision/qwen_look.h"

namespace reprise {
namespace {

constexpr IntRange kSmall{1, 1024};

// A parameter by its names in config.json (behind "vision_config.") and in the metadata of a GGUF
// file of projector type qwen3vl_merger (behind "clip.").
ConfigKey Key(std::string_view name, std::string_view gguf = "") { return {name, gguf}; }

// What GGUF files say besides, and nothing here computes otherwise.
void CheckProjector(ConfigReader* config) {
  if (!config->gguf()) return;
  const std::string type = config->Text(Key("", "projector_type"), "");
  if (type != QwenTower::kProjector) {
    config->Refuse("a tower with the projector '" + type + "' is not supported (" +
                   std::string(QwenTower::kProjector) + " is)");
  }
  if (!config->Bool(Key("", "use_gelu"), true)) config->Refuse("the tower must use GELU");
  const double eps = config->Number(Key("", "vision.attention.layer_norm_epsilon"), {0, 1}, 1e-6);
  if (float(eps) != 1e-6f) config->Refuse("the norms of the tower must add 1e-6");
}

// Layers with an end behind them. GGUF files have a flag for each layer.
std::vector<int> ReadDeep(ConfigReader* config, int depth) {
  std::vector<int> deep;
  if (config->gguf()) {
    const auto flags = config->Ints(Key("", "vision.is_deepstack_layers"), 1024, {0, 1});
    for (int i = 0; i < int(flags.size()); ++i) {
      if (flags[size_t(i)] != 0) deep.push_back(i);
    }
  } else {
    for (const int64_t layer :
         config->Ints(Key("vision_config.deepstack_visual_indexes"), 64, {0, 1023})) {
      deep.push_back(int(layer));
    }
  }
  const bool ascend =
      std::adjacent_find(deep.begin(), deep.end(), std::greater_equal<int>()) == deep.end();
  if (!ascend || (!deep.empty() && deep.back() >= depth)) {
    config->Refuse("the tower's layers with deepstack must ascend and be there");
  }
  return deep;
}

// The family whose tower it is. A GGUF file does not say: only Qwen3-VL has deepstack.
std::string FamilyOf(ConfigReader* config, const QwenTower::Shape& shape) {
  const std::string type = config->Text(Key("vision_config.model_type"), "");
  return type.starts_with("qwen3_vl") || !shape.deep.empty() ? "qwen3_vl" : "qwen3_5";
}

// Of the table of positions. GGUF files say the size of the square picture that it covers.
int64_t PositionsOf(ConfigReader* config, const PatchRules& rules) {
  if (!config->gguf()) return config->Int(Key("vision_config.num_position_embeddings"), kAnySize);
  constexpr int64_t kSideMax = 4096;
  const int64_t side = config->Int(Key("", "vision.image_size"), kAnySize) / rules.patch;
  if (side < 1 || side > kSideMax) {
    config->Refuse("a tower with a table of " + std::to_string(side) + " x " +
                   std::to_string(side) + " positions is not supported");
    return 1;
  }
  return side * side;
}

}  // namespace

Result<std::unique_ptr<QwenTower>> QwenTower::Make(ConfigReader* config, const PatchRules& rules) {
  Shape shape;
  shape.depth = int(config->Int(Key("vision_config.depth", "vision.block_count"), kSmall));
  shape.dim = config->Int(Key("vision_config.hidden_size", "vision.embedding_length"), kAnySize);
  shape.hidden =
      config->Int(Key("vision_config.intermediate_size", "vision.feed_forward_length"), kAnySize);
  shape.heads =
      int(config->Int(Key("vision_config.num_heads", "vision.attention.head_count"), kSmall));
  shape.out = config->Int(Key("vision_config.out_hidden_size", "vision.projection_dim"), kAnySize);
  shape.theta = config->Number(Key("vision_config.rope_parameters.rope_theta"), {1, 1e9}, 10000);
  CheckProjector(config);
  shape.deep = ReadDeep(config, shape.depth);
  const int64_t positions = PositionsOf(config, rules);
  shape.table_side = int(std::lround(std::sqrt(double(positions))));
  const auto must_be = [&](std::string_view name, std::string_view gguf, int64_t wanted,
                           int64_t fallback) {
    const std::string key = "vision_config." + std::string(name);
    const int64_t value = config->Int(Key(key, gguf), kAnySize, fallback);
    if (value == wanted) return;
    config->Refuse("a tower with " + std::string(name) + " " + std::to_string(value) +
                   " is not supported where pictures are prepared with " + std::to_string(wanted));
  };
  must_be("patch_size", "vision.patch_size", rules.patch, 16);
  must_be("temporal_patch_size", "", rules.frames, 2);
  must_be("spatial_merge_size", "vision.spatial_merge_size", rules.merge, 2);
  must_be("in_channels", "", 3, 3);
  const std::string act = config->Text(Key("vision_config.hidden_act"), "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") config->Refuse("a tower with '" + act + "' is not supported");
  if (rules.merge != 1 && rules.merge != 2 && rules.merge != 4) {
    config->Refuse("a tower that merges " + std::to_string(rules.merge) + " x " +
                   std::to_string(rules.merge) + " patches is not supported");
  }
  if (shape.dim % shape.heads != 0 || shape.dim / shape.heads % 4 != 0 ||
      int64_t{shape.table_side} * shape.table_side != positions) {
    config->Refuse("the tower's heads or positions do not divide evenly");
  }
  REPRISE_TRY(config->status());
  std::unique_ptr<QwenTower> tower(new QwenTower(shape, config->gguf()));
  tower->card_.family = FamilyOf(config, shape);
  tower->card_.token = "<|image_pad|>";
  tower->card_.rules = rules;
  tower->card_.dim = shape.width();
  return tower;
}

void QwenTower::DeclareTensors(TensorPlan* plan) {
  const Shape& s = shape_;
  const int64_t values = int64_t{3} * card_.rules.frames * card_.rules.patch * card_.rules.patch;
  if (gguf_) {
    // The convolution over two frames is one tensor for each.
    plan->AddVector(plan->Global("", "v.patch_embd.weight"), s.dim * values / 2, &patch_weights_);
    plan->AddVector(plan->Global("", "v.patch_embd.weight.1"), s.dim * values / 2, &second_frame_);
  } else {
    plan->AddVector(plan->Global("patch_embed.proj.weight", ""), s.dim * values, &patch_weights_);
  }
  plan->AddVector(plan->Global("patch_embed.proj.bias", "v.patch_embd.bias"), s.dim, &patch_bias_);
  plan->AddVector(plan->Global("pos_embed.weight", "v.position_embd.weight"),
                  int64_t{s.table_side} * s.table_side * s.dim, &table_);
  for (int i = 0; i < s.depth; ++i) {
    Layer& layer = layers_[size_t(i)];
    const std::string hf = "blocks." + std::to_string(i) + ".";
    const std::string gguf = "v.blk." + std::to_string(i) + ".";
    DeclareLayerNorm(plan, hf + "norm1", gguf + "ln1", s.dim, &layer.norm1, &layer.norm1_bias);
    DeclareLinear(plan, hf + "attn.qkv", gguf + "attn_qkv", 3 * s.dim, s.dim, &layer.qkv,
                  &layer.qkv_bias);
    DeclareLinear(plan, hf + "attn.proj", gguf + "attn_out", s.dim, s.dim, &layer.proj,
                  &layer.proj_bias);
    DeclareLayerNorm(plan, hf + "norm2", gguf + "ln2", s.dim, &layer.norm2, &layer.norm2_bias);
    DeclareLinear(plan, hf + "mlp.linear_fc1", gguf + "ffn_up", s.hidden, s.dim, &layer.fc1,
                  &layer.fc1_bias);
    DeclareLinear(plan, hf + "mlp.linear_fc2", gguf + "ffn_down", s.dim, s.hidden, &layer.fc2,
                  &layer.fc2_bias);
  }
  DeclareEnds(plan);
  // Half of a head's angles turn with the row, half with the column, both at the same speeds.
  plan->AddDerived(&frequencies_);
  const int quarter = s.head_dim() / 4;
  for (int f = 0; f < 2 * quarter; ++f) {
    const double exponent = -double(f % quarter) / quarter;
    frequencies_.values().push_back(float(reference::PowDouble(s.theta, exponent)));
    axes_.push_back(f < quarter ? 1 : 2);
  }
}

void QwenTower::DeclareEnds(TensorPlan* plan) {
  const int64_t merged = shape_.dim * card_.rules.merge * card_.rules.merge;
  const auto declare = [&](const std::string& hf, const std::string& norm, const std::string& fc1,
                           const std::string& fc2, int64_t normed, End* end) {
    DeclareLayerNorm(plan, hf + "norm", norm, normed, &end->norm, &end->norm_bias);
    DeclareLinear(plan, hf + "linear_fc1", fc1, merged, merged, &end->fc1, &end->fc1_bias);
    DeclareLinear(plan, hf + "linear_fc2", fc2, shape_.out, merged, &end->fc2, &end->fc2_bias);
  };
  declare("merger.", "v.post_ln", "mm.0", "mm.2", shape_.dim, &end_);
  // These norm the patches of a token together.
  for (size_t i = 0; i < ends_.size(); ++i) {
    const std::string gguf = "v.deepstack." + std::to_string(shape_.deep[i]) + ".";
    declare("deepstack_merger_list." + std::to_string(i) + ".", gguf + "norm", gguf + "fc1",
            gguf + "fc2", merged, &ends_[i]);
  }
}

// [dim, 3, patch, patch] of each frame becomes [dim, 3, frames, patch, patch].
void QwenTower::JoinFrames() {
  const size_t square = size_t(card_.rules.patch) * size_t(card_.rules.patch);
  std::vector<float> joined;
  joined.reserve(2 * patch_weights_.size());
  for (size_t at = 0; at < patch_weights_.size(); at += square) {
    for (const std::vector<float>* frame : {&patch_weights_, &second_frame_}) {
      joined.insert(joined.end(), frame->begin() + ptrdiff_t(at),
                    frame->begin() + ptrdiff_t(at + square));
    }
  }
  patch_weights_ = std::move(joined);
  second_frame_ = {};
}

// The first product is a convolution in the file.
Status QwenTower::CompleteWeights(const OpContext& context) {
  if (gguf_) JoinFrames();
  REPRISE_TRY(Pack(context, patch_weights_, int64_t(patch_weights_.size()) / shape_.dim, &patch_));
  patch_weights_ = {};
  return OkStatus();
}

Result<std::unique_ptr<VisionTower::Look>> QwenTower::Begin(const OpContext& context,
                                                            const Pixels& pixels) const {
  return QwenLook::Begin(*this, context, pixels);
}

}  // namespace reprise
