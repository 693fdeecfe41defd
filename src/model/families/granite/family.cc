// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"granite"};
constexpr std::string_view kGgufTypes[] = {"granite"};

constexpr PublishedSize kPublished[] = {
    {"granite-3.3-2b", R"({"model_type": "granite", "hidden_size": 2048, "intermediate_size": 8192,
      "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 49159, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 10000000.0, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
      "logits_scaling": 8.0, "residual_multiplier": 0.22, "tie_word_embeddings": true})"},
    {"granite-3.3-8b", R"({"model_type": "granite", "hidden_size": 4096,
      "intermediate_size": 12800, "num_hidden_layers": 40, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 49159, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 10000000.0, "attention_multiplier": 0.0078125,
      "embedding_multiplier": 12.0, "logits_scaling": 16.0, "residual_multiplier": 0.22,
      "tie_word_embeddings": true})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.rotary_pairs_in_gguf = true;
  traits.qkv_bias = reader->gguf() ? reader->FindTensor({"", "blk.0.attn_q.bias"}) != nullptr
                                   : reader->Bool({"attention_bias", ""}, false);
  traits.output_bias = reader->gguf()
                           ? reader->FindTensor({"", "blk.0.attn_output.bias"}) != nullptr
                           : traits.qkv_bias;
  const auto scale = [&](const char* hf, const char* gguf) {
    return float(reader->Number({hf, gguf}, {1e-6, 1e6}, 1.0));
  };
  traits.attention_scale = scale("attention_multiplier", "attention.scale");
  traits.embedding_scale = scale("embedding_multiplier", "embedding_scale");
  traits.residual_scale = scale("residual_multiplier", "residual_scale");
  const float divisor = scale("logits_scaling", "logit_scale");
  traits.logit_scale = 1 / divisor;
  traits.describe = [traits, divisor](const std::string& prefix, GgufWriter* out) {
    out->Put<float>(prefix + "embedding_scale", traits.embedding_scale);
    out->Put<float>(prefix + "residual_scale", traits.residual_scale);
    out->Put<float>(prefix + "logit_scale", divisor);
  };
  if (reader->Bool({"mlp_bias", ""}, false)) {
    reader->Refuse("mlp_bias is not supported for granite");
  }
  if (reader->Has({"num_local_experts", "expert_count"})) {
    reader->Refuse("mixtures of experts are not supported for granite");
  }
  DecoderConfig config = ReadDecoderConfig(reader);
  // Granite 4 without positions is such a file; what config.json says of windows nobody computes.
  if (!reader->Bool({"", "rope.scaling.finetuned"}, true)) {
    traits.turns.assign(size_t(config.layer_count), false);
  }
  config.windows.assign(size_t(config.layer_count), 0);
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_granite;
const Family k_granite = {"granite", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
