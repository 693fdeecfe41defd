// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/qwen_seeing.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_vl", "qwen3_vl_text"};
constexpr std::string_view kGgufTypes[] = {"qwen3vl"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3-VL-4B", R"({"model_type": "qwen3_vl_text", "hidden_size": 2560,
      "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
      "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0,
        "mrope_section": [24, 20, 20]}})"},
    {"Qwen3-VL-8B", R"({"model_type": "qwen3_vl_text", "hidden_size": 4096,
      "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0,
        "mrope_section": [24, 20, 20]}})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DecoderConfig config = ReadDecoderConfig(reader);
  const DenseTraits traits = MakeSeeingTraits(reader, kGgufTypes[0], &config);
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_qwen3_vl;
const Family k_qwen3_vl = {"qwen3_vl", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
