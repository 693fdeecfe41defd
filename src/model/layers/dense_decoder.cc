// SPDX-License-Identifier: Apache-2.0
#include "model/layers/dense_decoder.h"

#include <cmath>
#include <memory>
#include <utility>

namespace reprise {
namespace {

AttentionShape MakeAttentionShape(const DecoderConfig& config, const DenseTraits& traits,
                                  DType kv) {
  AttentionShape shape;
  shape.dim = config.dim;
  shape.q_heads = config.q_heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.eps = config.eps;
  // YaRN turns q and k alike, so its magnitude enters their product twice.
  const float magnitude = RopeMagnitude(config.rope);
  shape.scale = magnitude * magnitude / std::sqrt(float(config.head_dim));
  shape.bias = traits.qkv_bias;
  shape.output_bias = traits.output_bias;
  shape.qk_norm = traits.qk_norm;
  shape.rotary_pairs_in_gguf = traits.rotary_pairs_in_gguf;
  shape.residual_gain = config.residual_gain();
  shape.kv = kv;
  return shape;
}

}  // namespace

DenseDecoder::DenseDecoder(const DecoderConfig& config, const DenseTraits& traits, DType kv)
    : config_(config),
      traits_(traits),
      vocabulary_({config.vocab_size, config.dim, config.tied, config.eps, ValueForm::kPlain}) {
  card_.vocab_size = config.vocab_size;
  card_.context_length = config.context_length;
  layers_.reserve(size_t(config.layer_count));
  AttentionShape shape = MakeAttentionShape(config, traits, kv);
  for (int i = 0; i < config.layer_count; ++i) {
    shape.window = config.windows[size_t(i)];
    layers_.push_back({{},
                       Attention(shape, i, size_t(i)),
                       {},
                       SwiGluMlp(i, config.dim, config.hidden, config.residual_gain())});
    card_.state.layers.push_back(layers_.back().attention.state());
    layers_.back().attention.AddCost(&card_.state);
  }
}

void DenseDecoder::DeclareTensors(TensorPlan* plan) {
  vocabulary_.DeclareEmbedding(plan);
  if (config_.rope.scaling == RopeConfig::Scaling::kNone ||
      config_.rope.scaling == RopeConfig::Scaling::kLlama3) {
    plan->AddOptional("rope_freqs.weight", Llama3Divisors(config_.rope), &rope_divisors_);
  }
  for (int i = 0; i < config_.layer_count; ++i) {
    Layer& layer = layers_[size_t(i)];
    plan->AddNorm(plan->Layer(i, "input_layernorm.weight", "attn_norm.weight"), config_.dim,
                  ValueForm::kPlain, &layer.attention_norm);
    layer.attention.Declare(plan);
    plan->AddNorm(plan->Layer(i, "post_attention_layernorm.weight", "ffn_norm.weight"), config_.dim,
                  ValueForm::kPlain, &layer.mlp_norm);
    layer.mlp.Declare(plan);
  }
  vocabulary_.DeclareHead(plan);
}

void DenseDecoder::CompleteWeights() {
  frequencies_ = InverseFrequencies(config_.rope, rope_divisors_);
}

void DenseDecoder::DescribeGguf(GgufWriter* out) const {
  DescribeDecoder(config_, traits_.gguf_architecture, out);
}

void DenseDecoder::Forward(const OpContext& context, const BatchView& batch,
                           const StateMemory& memory, float* logits) const {
  const ScratchScope scope(*context.scratch);
  const Step step(context, batch, memory);
  const Rows x = vocabulary_.Embed(step);
  const RopeTable rope = MakeRopeTable(context, step.positions(), frequencies_);
  const Rows h = step.MakeRows(config_.dim);
  const Rows y = step.MakeRows(config_.dim);
  for (const Layer& layer : layers_) {
    RmsNorm(context, x, layer.attention_norm.data(), 1, config_.eps, h);
    layer.attention.Forward(step, rope, h, y);
    Add(context, x, y, x);
    RmsNorm(context, x, layer.mlp_norm.data(), 1, config_.eps, h);
    layer.mlp.Forward(step, h, y);
    Add(context, x, y, x);
  }
  vocabulary_.Logits(step, x, logits);
}

Result<std::unique_ptr<FamilyModel>> MakeDenseDecoder(ConfigReader* reader,
                                                      const DenseTraits& traits, DType kv) {
  const DecoderConfig config = ReadDecoderConfig(reader);
  for (const std::string& type : reader->Texts({"layer_types", ""}, 4096)) {
    if (type != "full_attention" && type != "sliding_attention") {
      reader->Refuse("layer type '" + type + "' is not supported for this family");
    }
  }
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<DenseDecoder>(config, traits, kv));
}

}  // namespace reprise
