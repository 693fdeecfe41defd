// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>

#include "kernels/activation_ops.h"
#include "model/families/rwkv7/rwkv7.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace rwkv7 {
namespace {

Vocabulary::Shape MakeVocabulary(const DecoderConfig& config) {
  Vocabulary::Shape shape{config.vocab_size, config.dim, config.tied, config.eps};
  shape.hf_embedding = "embeddings.weight";
  shape.layer_norm = true;
  return shape;
}

}  // namespace

Rwkv7::Rwkv7(const Config& config) : config_(config), vocabulary_(MakeVocabulary(config.decoder)) {
  const DecoderConfig& decoder = config.decoder;
  card_.vocab_size = decoder.vocab_size;
  card_.dim = decoder.dim;
  card_.context_length = decoder.context_length;
  for (int i = 0; i < decoder.layer_count; ++i) {
    layers_.emplace_back(config_, i, size_t(i));
    card_.state.layers.push_back(layers_.back().state());
  }
  // Read, decay, write and query of every matrix.
  card_.state.token_cost += 4.0 * double(decoder.dim) * config.head_dim * decoder.layer_count;
}

void Rwkv7::DeclareTensors(TensorPlan* plan) {
  const int64_t dim = config_.decoder.dim;
  vocabulary_.DeclareEmbedding(plan);
  const auto name = [&](const char* hf, const char* gguf) {
    return TensorPlan::Name{plan->Layer(0, hf, "").hf, gguf};
  };
  plan->AddNorm(name("pre_norm.weight", "token_embd_norm.weight"), dim, ValueForm::kPlain,
                &embedding_norm_.weight);
  plan->AddVector(name("pre_norm.bias", "token_embd_norm.bias"), dim, &embedding_norm_.bias)
      .init = {0, 0.1f};
  for (Layer& layer : layers_) layer.Declare(plan);
  vocabulary_.DeclareHead(plan);
}

void Rwkv7::DescribeGguf(GgufWriter* out) const {
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(std::string("rwkv7.") + key, uint32_t(value));
  };
  put("context_length", config_.decoder.context_length);
  put("embedding_length", config_.decoder.dim);
  put("block_count", config_.decoder.layer_count);
  put("vocab_size", config_.decoder.vocab_size);
  put("feed_forward_length", config_.decoder.hidden);
  put("attention.head_count", 0);
  out->Put<float>("rwkv7.attention.layer_norm_epsilon", config_.decoder.eps);
  put("wkv.head_size", config_.head_dim);
  put("attention.decay_lora_rank", config_.decay_rank);
  put("attention.iclr_lora_rank", config_.rate_rank);
  put("attention.value_residual_mix_lora_rank", config_.value_rank);
  put("attention.gate_lora_rank", config_.gate_rank);
  put("token_shift_count", 2);
}

void Rwkv7::Run(const Step& home, const StepResults& results) const {
  const Step* step = &home;
  Rows x = vocabulary_.Embed(home);
  LayerNorm(home.context(), x, embedding_norm_.weight.data(), embedding_norm_.bias.data(), 1,
            config_.decoder.eps, x);
  Rows first_values = home.MakeRows(config_.decoder.dim);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (const Step& next = home.OfLayer(int(i)); &next != step) {
      x = next.Bring(*step, x);
      first_values = i == 0 ? next.MakeRows(x.cols) : next.Bring(*step, first_values);
      step = &next;
    }
    layers_[i].Forward(*step, x, first_values);
  }
  vocabulary_.Logits(home, step == &home ? x : home.Bring(*step, x), results);
}

}  // namespace rwkv7

namespace {

constexpr std::string_view kHfTypes[] = {"rwkv7"};
constexpr std::string_view kGgufTypes[] = {"rwkv7"};

constexpr PublishedSize kPublished[] = {
    {"RWKV7-0.1B", R"({"model_type": "rwkv7", "hidden_size": 768, "num_hidden_layers": 12,
      "head_dim": 64, "intermediate_size": 3072, "decay_low_rank_dim": 64,
      "gate_low_rank_dim": 128, "a_low_rank_dim": 64, "v_low_rank_dim": 32, "norm_eps": 1e-5,
      "vocab_size": 65536, "tie_word_embeddings": false})"},
    {"RWKV7-1.5B", R"({"model_type": "rwkv7", "hidden_size": 2048, "num_hidden_layers": 24,
      "head_dim": 64, "intermediate_size": 8192, "decay_low_rank_dim": 96,
      "gate_low_rank_dim": 256, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "norm_eps": 1e-5,
      "vocab_size": 65536, "tie_word_embeddings": false})"},
};

// No position limits these models; what llama.cpp writes for them.
constexpr int64_t kContext = int64_t{1} << 20;
constexpr IntRange kRank{1, 65536};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType) {
  rwkv7::Config config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"norm_eps", "attention.layer_norm_epsilon"}, kContext, &decoder);
  ReadVocabulary(reader, false, &decoder);
  decoder.hidden =
      reader->Int({"intermediate_size", "feed_forward_length"}, kAnySize, 4 * decoder.dim);
  config.head_dim = int(reader->Int({"head_dim", "wkv.head_size"}, {2, 1024}, 64));
  if (decoder.dim % config.head_dim != 0) {
    reader->Refuse("width " + std::to_string(decoder.dim) + " does not divide into heads of " +
                   std::to_string(config.head_dim));
  }
  config.heads = int(decoder.dim / config.head_dim);
  config.decay_rank = int(reader->Int({"decay_low_rank_dim", "attention.decay_lora_rank"}, kRank));
  config.rate_rank = int(reader->Int({"a_low_rank_dim", "attention.iclr_lora_rank"}, kRank));
  config.value_rank =
      int(reader->Int({"v_low_rank_dim", "attention.value_residual_mix_lora_rank"}, kRank));
  config.gate_rank = int(reader->Int({"gate_low_rank_dim", "attention.gate_lora_rank"}, kRank));
  const std::string activation = reader->Text({"hidden_act", ""}, "sqrelu");
  if (activation != "sqrelu") {
    reader->Refuse("activation '" + activation + "' is not supported for rwkv7 (only sqrelu)");
  }
  if (reader->Has({"attn", ""}) || !reader->Bool({"norm_bias", ""}, true) ||
      !reader->Bool({"norm_first", ""}, true)) {
    reader->Refuse("rwkv7 with attention layers, without norm_bias or norm_first is not supported");
  }
  const ConfigKey value_dim{"value_dim", ""};  // of every layer, or of all
  const auto widths = reader->IsArray(value_dim)
                          ? reader->Ints(value_dim, 4096, kAnySize)
                          : std::vector<int64_t>{reader->Int(value_dim, kAnySize, decoder.dim)};
  for (const int64_t width : widths) {
    if (width != decoder.dim) reader->Refuse("value_dim other than hidden_size is not supported");
  }
  if (reader->Int({"", "token_shift_count"}, {1, 16}, 2) != 2) {
    reader->Refuse("rwkv7 with other than two token shifts per layer is not supported");
  }
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<rwkv7::Rwkv7>(config));
}

}  // namespace

extern const Family k_rwkv7;
const Family k_rwkv7 = {"rwkv7", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
