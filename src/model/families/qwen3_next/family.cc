// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/delta_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_next"};
constexpr std::string_view kGgufTypes[] = {"qwen3next"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3-Next-80B-A3B", R"({"model_type": "qwen3_next", "hidden_size": 2048,
      "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
      "full_attention_interval": 4, "rope_theta": 10000000.0, "partial_rotary_factor": 0.25})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  return MakeDeltaDecoder(reader, {"qwen3_next", kGgufTypes[0], true, true}, kv);
}

}  // namespace

extern const Family k_qwen3_next;
const Family k_qwen3_next = {"qwen3_next", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
