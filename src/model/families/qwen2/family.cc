// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen2"};
constexpr std::string_view kGgufTypes[] = {"qwen2"};

constexpr PublishedSize kPublished[] = {
    {"Qwen2.5-0.5B", R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
      "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
      "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0, "use_sliding_window": false, "tie_word_embeddings": true})"},
    {"Qwen2.5-7B", R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
      "vocab_size": 152064, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000.0, "use_sliding_window": false, "tie_word_embeddings": false})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* config, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.qkv_bias = true;
  return MakeDenseDecoder(config, traits, kv);
}

}  // namespace

extern const Family k_qwen2;
const Family k_qwen2 = {"qwen2", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
