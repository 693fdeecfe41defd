// SPDX-License-Identifier: Apache-2.0
#include "model/families/longcat_flash/longcat_flash.h"

#include <cmath>
#include <utility>

#include "model/config/rope.h"
#include "weights/format/gguf_writer.h"

namespace reprise::longcat_flash {
namespace {

// Tensors of the second half of a layer, in GGUF files.
constexpr const char* kSuffix[2] = {"", "_1"};

void ReadAttention(ConfigReader* reader, DType kv, Config* config) {
  MlaShape& shape = config->attention;
  shape.dim = config->decoder.dim;
  shape.residual_gain = config->decoder.residual_gain();
  shape.rotary_pairs = true;
  shape.kv = kv;
  ReadMlaShape(reader, &shape);
  const double dim = double(shape.dim);
  if (shape.q_rank > 0 && reader->Bool({"mla_scale_q_lora", ""}, true)) {
    shape.q_scale = float(std::sqrt(dim / shape.q_rank));
  }
  if (reader->Bool({"mla_scale_kv_lora", ""}, true)) {
    shape.kv_scale = float(std::sqrt(dim / shape.kv_rank));
  }
  const auto expect = [&](const char* key, int64_t width) {
    if (reader->Int({key, ""}, {0, int64_t{1} << 24}, width) != width) {
      reader->Refuse(std::string(key) + " is not the " + std::to_string(width) +
                     " that follows from the other widths");
    }
  };
  expect("head_dim", shape.rope_dim);
  expect("qk_head_dim", shape.nope_dim + shape.rope_dim);
  config->decoder.rope = ReadRopeConfig(reader, shape.rope_dim, {.theta = 10000000});
  if (config->decoder.rope.scaling != RopeConfig::Scaling::kNone) {
    reader->Refuse("scaled rotary positions are not supported for longcat_flash");
  }
}

void ReadExperts(ConfigReader* reader, Config* config) {
  MoeShape& moe = config->moe;
  moe = ReadMoeShape(reader, config->decoder.dim, config->decoder.residual_gain());
  moe.identity_experts = int(reader->Int({"zero_expert_num", "expert_zero_count"}, {0, 4096}, 0));
  const std::string type = reader->Text({"zero_expert_type", ""}, "identity");
  if (type != "identity") {
    reader->Refuse("zero experts of type '" + type + "' are not supported for longcat_flash");
  }
  if (reader->Bool({"router_bias", ""}, false) || reader->Bool({"norm_topk_prob", ""}, false)) {
    reader->Refuse("a router with biases or normalised weights is not supported for longcat_flash");
  }
  moe.routing.scale = float(reader->Number({"routed_scaling_factor", "expert_weights_scale"},
                                           {1e-6, 1e6}, reader->gguf() ? 1.0 : 6.0));
  SetNormalised(reader, false, &moe);
  moe.names.router = "mlp.router.classifier.weight";
  moe.names.selection_bias = "mlp.router.e_score_correction_bias";
}

}  // namespace

Result<Config> ReadConfig(ConfigReader* reader, DType kv) {
  Config config;
  DecoderConfig& decoder = config.decoder;
  // Published files count layers in num_layers, Transformers attentions in num_hidden_layers.
  reader->AddDefaults(R"({"num_hidden_layers": 2})");
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  if (!reader->gguf()) {
    decoder.layer_count =
        int(reader->Int({"num_layers", ""}, {1, 1024}, (decoder.layer_count + 1) / 2));
  }
  ReadVocabulary(reader, false, &decoder);
  CheckActivation(reader, "silu");
  decoder.hidden = reader->Int({"ffn_hidden_size", "feed_forward_length"}, kAnySize);
  ReadAttention(reader, kv, &config);
  ReadExperts(reader, &config);
  REPRISE_TRY(reader->status());
  return config;
}

LongcatFlash::Half LongcatFlash::MakeHalf(int layer, int half) {
  MlaShape attention = config_.attention;
  attention.hf = "self_attn." + std::to_string(half);
  attention.gguf = kSuffix[half];
  MlpShape mlp;
  mlp.dim = config_.decoder.dim;
  mlp.hidden = config_.decoder.hidden;
  mlp.residual_gain = config_.decoder.residual_gain();
  mlp.hf = "mlps." + std::to_string(half);
  mlp.gguf = kSuffix[half];
  StateSpec& state = card_.state;
  Half made{MlaAttention(attention, layer, state.layers.size()), GatedMlp(mlp, layer), {}, {}};
  state.layers.push_back(made.attention.state());
  made.attention.AddCost(&state);
  return made;
}

LongcatFlash::LongcatFlash(const Config& config)
    : config_(config),
      vocabulary_({config.decoder.vocab_size, config.decoder.dim, config.decoder.tied,
                   config.decoder.eps}) {
  card_.vocab_size = config.decoder.vocab_size;
  card_.dim = config.decoder.dim;
  card_.context_length = config.decoder.context_length;
  card_.rope_regime = config.decoder.rope.Regime();
  layers_.reserve(size_t(config.decoder.layer_count));
  for (int i = 0; i < config.decoder.layer_count; ++i) {
    Half first = MakeHalf(i, 0);
    Half second = MakeHalf(i, 1);
    layers_.push_back({{std::move(first), std::move(second)}, MoeMlp(config_.moe, i)});
  }
}

void LongcatFlash::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  plan->AddDerived(&frequencies_);
  for (int i = 0; i < config_.decoder.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    for (size_t s = 0; s < 2; ++s) {
      Half& half = layer.halves[s];
      const auto norm = [&](const char* hf, const char* gguf, Vector* out) {
        plan->AddNorm(plan->Layer(i, std::string(hf) + "." + std::to_string(s) + ".weight",
                                  std::string(gguf) + kSuffix[s] + ".weight"),
                      config_.decoder.dim, ValueForm::kPlain, out);
      };
      norm("input_layernorm", "attn_norm", &half.attention_norm);
      half.attention.Declare(plan);
      norm("post_attention_layernorm", "ffn_norm", &half.mlp_norm);
      half.mlp.Declare(plan);
    }
    layer.moe.Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void LongcatFlash::CompleteWeights() {
  frequencies_.values() = InverseFrequencies(config_.decoder.rope);
  for (Layer& layer : layers_) {
    for (Half& half : layer.halves) half.attention.CompleteWeights();
  }
}

std::string LongcatFlash::DescribeNumerics() const {
  return config_.decoder.rope.Describe() + DescribeRouting(config_.moe) + " scales " +
         std::to_string(config_.attention.q_scale) + " " +
         std::to_string(config_.attention.kv_scale);
}

void LongcatFlash::DescribeGguf(GgufWriter* out) const {
  constexpr const char* kArchitecture = "longcat-flash";
  const std::string prefix = std::string(kArchitecture) + ".";
  DescribeStream(config_.decoder, kArchitecture, out);
  DescribeMla(config_.attention, kArchitecture, out);
  DescribeMoe(config_.moe, kArchitecture, out);
  out->Put<uint32_t>(prefix + "feed_forward_length", uint32_t(config_.decoder.hidden));
  out->Put<uint32_t>(prefix + "expert_zero_count", uint32_t(config_.moe.identity_experts));
  out->Put<float>(prefix + "expert_weights_scale", config_.moe.routing.scale);
  out->Put<uint32_t>(prefix + "rope.dimension_count", uint32_t(config_.attention.rope_dim));
  out->Put<float>(prefix + "rope.freq_base", float(config_.decoder.rope.theta));
}

void LongcatFlash::Run(const Step& home, const StepResults& results) const {
  const float eps = config_.decoder.eps;
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  RopeTable rope =
      MakeRopeTable(home.context(), home.layout(), frequencies_.data(), int(frequencies_.size()));
  Rows h, y, shortcut;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Step& next = home.OfLayer(int(i));
    if (&next != step) {
      x = next.Bring(*step, x);
      rope = next.Bring(*step, rope);
    }
    if (i == 0 || &next != step) {
      for (Rows* rows : {&h, &y, &shortcut}) *rows = next.MakeRows(config_.decoder.dim);
    }
    step = &next;
    const OpContext& context = step->context();
    for (size_t s = 0; s < 2; ++s) {
      const Half& half = layer.halves[s];
      RmsNorm(context, x, half.attention_norm.data(), 1, eps, h);
      half.attention.Forward(*step, rope, h, y);
      Add(context, x, y, x);
      RmsNorm(context, x, half.mlp_norm.data(), 1, eps, h);
      if (s == 0) layer.moe.Forward(*step, h, shortcut);
      half.mlp.Forward(*step, h, y);
      Add(context, x, y, x);
    }
    Add(context, x, shortcut, x);
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

}  // namespace reprise::longcat_flash
