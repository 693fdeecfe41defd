// SPDX-License-Identifier: Apache-2.0
#include "model/vision/gemma/gemma4_tower.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/reference/math.h"
#include "model/vision/gemma/gemma4_look.h"

namespace reprise {
namespace {

constexpr IntRange kSmall{1, 1024};
constexpr int kMergeMax = 16;
constexpr std::string_view kBounds[] = {"input_min", "input_max", "output_min", "output_max"};

// A parameter by its names in config.json and in the metadata of a GGUF file (behind "clip.").
ConfigKey Key(std::string_view name, std::string_view gguf = "") { return {name, gguf}; }

void CheckKnown(ConfigReader* config, const Gemma4Tower::Shape& shape) {
  if (shape.head_dim % 4 != 0) config->Refuse("the tower's heads do not divide evenly");
  if (config->gguf()) return;
  const std::string act = config->Text(Key("vision_config.hidden_activation"), "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") config->Refuse("a tower with '" + act + "' is not supported");
  const std::string rope = config->Text(Key("vision_config.rope_parameters.rope_type"), "axial");
  if (rope != "axial" && rope != "default") {
    config->Refuse("a tower with the positions '" + rope + "' is not supported");
  }
  const int64_t heads = config->Int(Key("vision_config.num_key_value_heads"), kSmall, shape.heads);
  if (heads != shape.heads) config->Refuse("a tower whose heads share keys is not supported");
  if (config->Bool(Key("vision_config.attention_bias"), false)) {
    config->Refuse("a tower with biases is not supported");
  }
}

// What GGUF files say by the tensors that they have.
void ReadGgufTensors(ConfigReader* config, Gemma4Tower::Shape* shape) {
  shape->clamps = config->FindTensor({"", "v.blk.0.attn_q.input_max"}) != nullptr;
  shape->standardises = config->FindTensor({"", "v.std_bias"}) != nullptr;
  const StoredTensor* table = config->FindTensor({"", "v.position_embd.weight"});
  if (table == nullptr || table->shape.elements() % (2 * shape->dim) != 0) {
    return config->Refuse("the tower has no table of positions that fits it");
  }
  shape->table_side = table->shape.elements() / (2 * shape->dim);
}

}  // namespace

PatchRules Gemma4Tower::DefaultRules() {
  PatchRules rules;
  rules.fit = PictureFit::kTokens;
  rules.frames = 1;
  rules.merge = 3;
  return rules;
}

Result<std::unique_ptr<Gemma4Tower>> Gemma4Tower::Make(ConfigReader* config, PatchRules rules) {
  Shape shape;
  shape.depth =
      int(config->Int(Key("vision_config.num_hidden_layers", "vision.block_count"), kSmall));
  shape.dim = config->Int(Key("vision_config.hidden_size", "vision.embedding_length"), kAnySize);
  shape.hidden =
      config->Int(Key("vision_config.intermediate_size", "vision.feed_forward_length"), kAnySize);
  shape.heads = int(
      config->Int(Key("vision_config.num_attention_heads", "vision.attention.head_count"), kSmall));
  const int64_t head_dim = shape.dim / shape.heads;
  shape.head_dim =
      int(config->gguf() ? head_dim : config->Int(Key("vision_config.head_dim"), kSmall, head_dim));
  shape.out = config->Int(Key("hidden_size", "vision.projection_dim"), kAnySize);
  shape.eps = float(config->Number(
      Key("vision_config.rms_norm_eps", "vision.attention.layer_norm_epsilon"), {0, 1}, 1e-6));
  shape.theta = config->Number(Key("vision_config.rope_parameters.rope_theta"), {1, 1e9}, 100);
  CheckKnown(config, shape);
  const int patch =
      int(config->Int(Key("vision_config.patch_size", "vision.patch_size"), {1, 64}, 16));
  const int merge =
      int(config->Int(Key("vision_config.pooling_kernel_size", "vision.projector.scale_factor"),
                      {1, kMergeMax}, 3));
  if (config->gguf()) {
    rules.patch = patch;
    rules.merge = merge;
    ReadGgufTensors(config, &shape);
    rules.tokens_max = int(std::min<int64_t>(rules.tokens_max, shape.table_side / merge));
  } else {
    shape.clamps = config->Bool(Key("vision_config.use_clipped_linears"), false);
    shape.standardises = config->Bool(Key("vision_config.standardize"), false);
    shape.table_side = config->Int(Key("vision_config.position_embedding_size"), kAnySize, 10240);
  }
  if (rules.patch != patch || rules.merge != merge) {
    config->Refuse("a tower for patches of " + std::to_string(patch) + " and " +
                   std::to_string(merge) + " x " + std::to_string(merge) +
                   " of them is not supported where pictures are prepared for others");
  }
  if (int64_t{rules.tokens_max} * merge > shape.table_side) {
    config->Refuse("the tower's table of positions is too small for its pictures");
  }
  REPRISE_TRY(config->status());
  std::unique_ptr<Gemma4Tower> tower(new Gemma4Tower(shape, config->gguf()));
  tower->card_.family = "gemma4";
  tower->card_.token = "<|image|>";
  tower->card_.rules = rules;
  tower->card_.in_line = true;
  tower->card_.dim = shape.out;
  return tower;
}

void Gemma4Tower::DeclareLinear(TensorPlan* plan, const std::string& hf, const std::string& gguf,
                                int64_t rows, int64_t cols, Linear* linear) const {
  plan->AddMatrix(plan->Global(hf + ".linear.weight", gguf + ".weight"), rows, cols,
                  &linear->weight);
  for (size_t i = 0; shape_.clamps && i < linear->bounds.size(); ++i) {
    const std::string bound = "." + std::string(kBounds[i]);
    plan->AddVector(plan->Global(hf + bound, gguf + bound), 1, &linear->bounds[i]);
  }
}

void Gemma4Tower::DeclareTensors(TensorPlan* plan) {
  const Shape& s = shape_;
  const int64_t values = int64_t{3} * card_.rules.patch * card_.rules.patch;
  const std::string embedder = "vision_tower.patch_embedder.";
  plan->AddVector(plan->Global(embedder + "input_proj.weight", "v.patch_embd.weight"),
                  s.dim * values, &patch_weights_);
  plan->AddVector(plan->Global(embedder + "position_embedding_table", "v.position_embd.weight"),
                  2 * s.table_side * s.dim, &table_);
  for (int i = 0; i < s.depth; ++i) {
    Layer& layer = layers_[size_t(i)];
    const std::string hf = "vision_tower.encoder.layers." + std::to_string(i) + ".";
    const std::string gguf = "v.blk." + std::to_string(i) + ".";
    const auto norm = [&](const char* name, const char* short_name, int64_t size, Vector* out) {
      plan->AddNorm(plan->Global(hf + name + ".weight", gguf + short_name + ".weight"), size,
                    ValueForm::kPlain, out);
    };
    norm("input_layernorm", "ln1", s.dim, &layer.norm);
    DeclareLinear(plan, hf + "self_attn.q_proj", gguf + "attn_q", s.width(), s.dim, &layer.q);
    DeclareLinear(plan, hf + "self_attn.k_proj", gguf + "attn_k", s.width(), s.dim, &layer.k);
    DeclareLinear(plan, hf + "self_attn.v_proj", gguf + "attn_v", s.width(), s.dim, &layer.v);
    norm("self_attn.q_norm", "attn_q_norm", s.head_dim, &layer.q_norm);
    norm("self_attn.k_norm", "attn_k_norm", s.head_dim, &layer.k_norm);
    DeclareLinear(plan, hf + "self_attn.o_proj", gguf + "attn_out", s.dim, s.width(), &layer.out);
    norm("post_attention_layernorm", "attn_post_norm", s.dim, &layer.post_norm);
    norm("pre_feedforward_layernorm", "ln2", s.dim, &layer.mlp_norm);
    DeclareLinear(plan, hf + "mlp.gate_proj", gguf + "ffn_gate", s.hidden, s.dim, &layer.gate);
    DeclareLinear(plan, hf + "mlp.up_proj", gguf + "ffn_up", s.hidden, s.dim, &layer.up);
    DeclareLinear(plan, hf + "mlp.down_proj", gguf + "ffn_down", s.dim, s.hidden, &layer.down);
    norm("post_feedforward_layernorm", "ffn_post_norm", s.dim, &layer.mlp_post_norm);
  }
  if (s.standardises) {
    plan->AddVector(plan->Global("vision_tower.std_bias", "v.std_bias"), s.dim, &std_bias_);
    plan->AddVector(plan->Global("vision_tower.std_scale", "v.std_scale"), s.dim, &std_scale_);
  }
  plan->AddMatrix(
      plan->Global("embed_vision.embedding_projection.weight", "mm.input_projection.weight"), s.out,
      s.dim, &project_);
  // A quarter of a head's channels has an angle that turns with the column, as much one with the
  // row, both at the same speeds.
  plan->AddDerived(&frequencies_);
  plan->AddDerived(&ones_);
  plan->AddDerived(&token_ones_);
  const int quarter = s.head_dim / 4;
  for (int f = 0; f < quarter; ++f) {
    frequencies_.values().push_back(float(reference::PowDouble(s.theta, -double(f) / quarter)));
  }
  ones_.values().assign(size_t(s.head_dim), 1.0f);
  token_ones_.values().assign(size_t(s.dim), 1.0f);
}

// A row of the first product: in a folder by pixel and colour, in a GGUF file and here by colour
// and pixel.
Status Gemma4Tower::CompleteWeights(const OpContext& context) {
  const int64_t pixels = int64_t{card_.rules.patch} * card_.rules.patch;
  if (!gguf_) {
    std::vector<float> row(size_t(3 * pixels));
    for (size_t at = 0; at < patch_weights_.size(); at += row.size()) {
      for (size_t i = 0; i < row.size(); ++i) {
        row[i % 3 * size_t(pixels) + i / 3] = patch_weights_[at + i];
      }
      std::copy(row.begin(), row.end(), patch_weights_.begin() + ptrdiff_t(at));
    }
  }
  REPRISE_TRY(Pack(context, patch_weights_, 3 * pixels, &patch_));
  patch_weights_ = {};
  for (float& value : std_bias_) value = -value;
  return OkStatus();
}

Result<std::unique_ptr<VisionTower::Look>> Gemma4Tower::Begin(const OpContext& context,
                                                              const Pixels& pixels) const {
  return Gemma4Look::Begin(*this, context, pixels);
}

}  // namespace reprise
