// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/delta_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_5_moe_text", "qwen3_5_moe"};
constexpr std::string_view kGgufTypes[] = {"qwen35moe"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3.5-35B-A3B", R"({"model_type": "qwen3_5_moe_text", "hidden_size": 2048,
      "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
      "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "num_experts": 256,
      "num_experts_per_tok": 8, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]}})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  return MakeDeltaDecoder(reader, {"qwen3_5_moe", kGgufTypes[0], true, false}, kv);
}

}  // namespace

extern const Family k_qwen3_5_moe;
const Family k_qwen3_5_moe = {"qwen3_5_moe", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
