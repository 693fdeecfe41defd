// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/families/gemma4/gemma4.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma4_text", "gemma4"};
constexpr std::string_view kGgufTypes[] = {"gemma4"};

constexpr PublishedSize kPublished[] = {
    {"gemma-4-E2B", R"({"model_type": "gemma4_text", "hidden_size": 1536,
      "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8,
      "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
      "num_kv_shared_layers": 20, "use_double_wide_mlp": true, "sliding_window": 512,
      "_sliding_window_pattern": 5, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "final_logit_softcapping": 30.0, "tie_word_embeddings": true})"},
    {"gemma-4-E4B", R"({"model_type": "gemma4_text", "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 42, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
      "num_kv_shared_layers": 18, "sliding_window": 512, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0, "tie_word_embeddings": true})"},
    {"gemma-4-26B-A4B", R"({"model_type": "gemma4_text", "hidden_size": 2816,
      "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": 2, "attention_k_eq_v": true, "enable_moe_block": true,
      "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "vocab_size": 262144,
      "hidden_size_per_layer_input": 0, "sliding_window": 1024,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0,
      "tie_word_embeddings": true})"},
    {"gemma-4-31B", R"({"model_type": "gemma4_text", "hidden_size": 5376,
      "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32,
      "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
      "num_global_key_value_heads": 4, "attention_k_eq_v": true, "vocab_size": 262144,
      "hidden_size_per_layer_input": 0, "sliding_window": 1024,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0,
      "tie_word_embeddings": true})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  const Gemma4Config config = ReadGemma4Config(reader);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Gemma4Model>(config, kv));
}

}  // namespace

extern const Family k_gemma4;
const Family k_gemma4 = {"gemma4", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
