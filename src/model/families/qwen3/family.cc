// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3"};
constexpr std::string_view kGgufTypes[] = {"qwen3"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3-0.6B", R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": false,
      "tie_word_embeddings": true})"},
    {"Qwen3-4B", R"({"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": false,
      "tie_word_embeddings": true})"},
    {"Qwen3-8B", R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
      "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "use_sliding_window": false,
      "tie_word_embeddings": false})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* config, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.qk_norm = true;
  if (config->Bool({"attention_bias", ""}, false)) {
    config->Refuse("attention_bias is not supported for qwen3");
  }
  return MakeDenseDecoder(config, traits, kv);
}

}  // namespace

extern const Family k_qwen3;
const Family k_qwen3 = {"qwen3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
