// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/delta_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_5", "qwen3_5_text"};
constexpr std::string_view kGgufTypes[] = {"qwen35"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3.5-0.8B", R"({"model_type": "qwen3_5_text", "hidden_size": 1024,
      "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
      "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})"},
    {"Qwen3.5-4B", R"({"model_type": "qwen3_5_text", "hidden_size": 2560,
      "intermediate_size": 9216, "num_hidden_layers": 32, "num_attention_heads": 16,
      "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})"},
    {"Qwen3.5-9B", R"({"model_type": "qwen3_5_text", "hidden_size": 4096,
      "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
      "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})"},
    {"Qwen3.5-27B", R"({"model_type": "qwen3_5_text", "hidden_size": 5120,
      "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24,
      "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  return MakeDeltaDecoder(reader, {"qwen3_5", kGgufTypes[0]}, kv);
}

}  // namespace

extern const Family k_qwen3_5;
const Family k_qwen3_5 = {"qwen3_5", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
