// SPDX-License-Identifier: Apache-2.0
#include "model/vision/gemma/siglip_tower.h"

#include <cmath>
#include <string>
#include <utility>

#include "model/vision/gemma/siglip_look.h"

namespace reprise {
namespace {

constexpr IntRange kSmall{1, 1024};
constexpr std::string_view kNested = "vision_tower.vision_model.post_layernorm.weight";

// A parameter by its names in config.json and in the metadata of a GGUF file (behind "clip.").
ConfigKey Key(std::string_view name, std::string_view gguf = "") { return {name, gguf}; }

// How many patches on a side become one token.
int ReadMerge(ConfigReader* config, int patches) {
  constexpr int kMergeMax = 16;
  if (config->gguf()) {
    return int(config->Int(Key("", "vision.projector.scale_factor"), {1, kMergeMax}, 4));
  }
  const int64_t tokens = config->Int(Key("mm_tokens_per_image"), {1, 65536}, 256);
  const auto side = int64_t(std::lround(std::sqrt(double(tokens))));
  if (side * side != tokens || patches % side != 0 || patches / side > kMergeMax) {
    config->Refuse("a tower that makes " + std::to_string(tokens) + " tokens of " +
                   std::to_string(patches) + " x " + std::to_string(patches) +
                   " patches is not supported");
    return 1;
  }
  return int(patches / side);
}

void CheckKnown(ConfigReader* config) {
  if (config->gguf()) {
    if (!config->Bool(Key("", "use_gelu"), true)) config->Refuse("the tower must use GELU");
    return;
  }
  const std::string act = config->Text(Key("vision_config.hidden_act"), "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") config->Refuse("a tower with '" + act + "' is not supported");
  if (config->Int(Key("vision_config.num_channels"), kSmall, 3) != 3) {
    config->Refuse("a tower must have 3 channels");
  }
}

}  // namespace

PatchRules SiglipTower::DefaultRules() {
  PatchRules rules;
  rules.fit = PictureFit::kSquare;
  rules.filter = ResizeFilter::kBilinear;
  rules.frames = 1;
  rules.side = 0;
  return rules;
}

Result<std::unique_ptr<SiglipTower>> SiglipTower::Make(ConfigReader* config, PatchRules rules) {
  Shape shape;
  shape.depth =
      int(config->Int(Key("vision_config.num_hidden_layers", "vision.block_count"), kSmall));
  shape.dim = config->Int(Key("vision_config.hidden_size", "vision.embedding_length"), kAnySize);
  shape.hidden =
      config->Int(Key("vision_config.intermediate_size", "vision.feed_forward_length"), kAnySize);
  shape.heads = int(
      config->Int(Key("vision_config.num_attention_heads", "vision.attention.head_count"), kSmall));
  shape.out = config->Int(Key("hidden_size", "vision.projection_dim"), kAnySize);
  shape.eps = float(config->Number(
      Key("vision_config.layer_norm_eps", "vision.attention.layer_norm_epsilon"), {0, 1}, 1e-6));
  const int side =
      int(config->Int(Key("vision_config.image_size", "vision.image_size"), {1, 4096}));
  rules.patch = int(config->Int(Key("vision_config.patch_size", "vision.patch_size"), {1, 64}));
  CheckKnown(config);
  REPRISE_TRY(config->status());
  if (rules.side == 0) rules.side = side;
  if (rules.side != side) {
    config->Refuse("a tower for pictures of " + std::to_string(side) +
                   " pixels is not supported where they are given " + std::to_string(rules.side));
  }
  if (side % rules.patch != 0 || shape.dim % shape.heads != 0) {
    config->Refuse("the tower's heads or patches do not divide evenly");
  }
  REPRISE_TRY(config->status());
  rules.merge = ReadMerge(config, side / rules.patch);
  if (side / rules.patch % rules.merge != 0) {
    config->Refuse("the tower's tokens do not divide its patches evenly");
  }
  const bool nested = config->FindTensor({kNested, ""}) != nullptr ||
                      config->FindTensor({"model." + std::string(kNested), ""}) != nullptr;
  const StoredTensor* down = config->FindTensor({"", "v.blk.0.ffn_down.weight"});
  const bool swapped =
      down != nullptr && shape.hidden != shape.dim && down->shape.cols() == shape.dim;
  REPRISE_TRY(config->status());
  std::unique_ptr<SiglipTower> tower(new SiglipTower(shape, nested, swapped));
  tower->card_.family = "gemma3";
  tower->card_.token = "<image_soft_token>";
  tower->card_.rules = rules;
  tower->card_.in_line = true;
  tower->card_.dim = shape.out;
  return tower;
}

void SiglipTower::DeclareTensors(TensorPlan* plan) {
  const Shape& s = shape_;
  const PatchRules& rules = card_.rules;
  const int64_t values = int64_t{3} * rules.patch * rules.patch;
  const int64_t patches = int64_t{rules.side / rules.patch} * (rules.side / rules.patch);
  const std::string tower = nested_ ? "vision_tower.vision_model." : "vision_tower.";
  const std::string embeddings = tower + "embeddings.";
  plan->AddVector(plan->Global(embeddings + "patch_embedding.weight", "v.patch_embd.weight"),
                  s.dim * values, &patch_weights_);
  plan->AddVector(plan->Global(embeddings + "patch_embedding.bias", "v.patch_embd.bias"), s.dim,
                  &patch_bias_);
  plan->AddVector(plan->Global(embeddings + "position_embedding.weight", "v.position_embd.weight"),
                  patches * s.dim, &table_);
  for (int i = 0; i < s.depth; ++i) {
    Layer& layer = layers_[size_t(i)];
    const std::string hf = tower + "encoder.layers." + std::to_string(i) + ".";
    const std::string gguf = "v.blk." + std::to_string(i) + ".";
    const auto square = [&](const char* name, const char* short_name, Matrix* weight,
                            Vector* bias) {
      DeclareLinear(plan, hf + "self_attn." + name, gguf + short_name, s.dim, s.dim, weight, bias);
    };
    DeclareLayerNorm(plan, hf + "layer_norm1", gguf + "ln1", s.dim, &layer.norm1,
                     &layer.norm1_bias);
    square("q_proj", "attn_q", &layer.q, &layer.q_bias);
    square("k_proj", "attn_k", &layer.k, &layer.k_bias);
    square("v_proj", "attn_v", &layer.v, &layer.v_bias);
    square("out_proj", "attn_out", &layer.out, &layer.out_bias);
    DeclareLayerNorm(plan, hf + "layer_norm2", gguf + "ln2", s.dim, &layer.norm2,
                     &layer.norm2_bias);
    DeclareLinear(plan, hf + "mlp.fc1", gguf + (swapped_ ? "ffn_down" : "ffn_up"), s.hidden, s.dim,
                  &layer.fc1, &layer.fc1_bias);
    DeclareLinear(plan, hf + "mlp.fc2", gguf + (swapped_ ? "ffn_up" : "ffn_down"), s.dim, s.hidden,
                  &layer.fc2, &layer.fc2_bias);
  }
  DeclareLayerNorm(plan, tower + "post_layernorm", "v.post_ln", s.dim, &norm_, &norm_bias_);
  plan->AddNorm(
      plan->Global("multi_modal_projector.mm_soft_emb_norm.weight", "mm.soft_emb_norm.weight"),
      s.dim, ValueForm::kOnePlus, &token_norm_);
  plan->AddVector(plan->Global("multi_modal_projector.mm_input_projection_weight",
                               "mm.input_projection.weight"),
                  s.dim * s.out, &projection_);
}

// The first product is a convolution in the files, the last one lies there on its side.
Status SiglipTower::CompleteWeights(const OpContext& context) {
  REPRISE_TRY(Pack(context, patch_weights_, int64_t(patch_weights_.size()) / shape_.dim, &patch_));
  patch_weights_ = {};
  std::vector<float> turned(projection_.size());
  const auto dim = size_t(shape_.dim), out = size_t(shape_.out);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < out; ++j) turned[j * dim + i] = projection_[i * out + j];
  }
  projection_ = {};
  return Pack(context, turned, shape_.dim, &project_);
}

Result<std::unique_ptr<VisionTower::Look>> SiglipTower::Begin(const OpContext& context,
                                                              const Pixels& pixels) const {
  return SiglipLook::Begin(*this, context, pixels);
}

}  // namespace reprise
