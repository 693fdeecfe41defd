// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>

#include "model/families/nemotron_h/nemotron_h.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"nemotron_h"};
constexpr std::string_view kGgufTypes[] = {"nemotron_h", "nemotron_h_moe"};

constexpr PublishedSize kPublished[] = {
    {"Nemotron-H-8B", R"({"model_type": "nemotron_h", "hidden_size": 4096,
      "intermediate_size": 21504, "num_hidden_layers": 52, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 128, "mamba_head_dim": 64,
      "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
      "max_position_embeddings": 8192, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
      "tie_word_embeddings": false, "hybrid_override_pattern":
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"})"},
    {"Nemotron-H-4B", R"({"model_type": "nemotron_h", "hidden_size": 3072,
      "intermediate_size": 12288, "num_hidden_layers": 52, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 112, "mamba_head_dim": 64,
      "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
      "max_position_embeddings": 8192, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
      "tie_word_embeddings": false, "hybrid_override_pattern":
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"})"},
    {"Nemotron-3-Nano-4B", R"({"model_type": "nemotron_h", "hidden_size": 3136,
      "intermediate_size": 12544, "num_hidden_layers": 42, "num_attention_heads": 40,
      "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 96, "mamba_head_dim": 80,
      "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
      "max_position_embeddings": 262144, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
      "tie_word_embeddings": false, "hybrid_override_pattern":
        "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-"})"},
    {"Nemotron-3-Nano-30B-A3B", R"({"model_type": "nemotron_h", "hidden_size": 2688,
      "intermediate_size": 1856, "num_hidden_layers": 52, "num_attention_heads": 32,
      "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64,
      "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
      "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
      "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
      "max_position_embeddings": 262144, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
      "tie_word_embeddings": false, "hybrid_override_pattern":
        "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"})"},
    {"Nemotron-H-small", R"({"model_type": "nemotron_h", "hidden_size": 1024,
      "intermediate_size": 4096, "num_hidden_layers": 16, "num_attention_heads": 16,
      "num_key_value_heads": 4, "head_dim": 64, "mamba_num_heads": 32, "mamba_head_dim": 64,
      "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "vocab_size": 131072,
      "max_position_embeddings": 8192, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
      "tie_word_embeddings": false, "hybrid_override_pattern": "M-M-M-M*-M-M-M-M"})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  const nemotron_h::Config config = nemotron_h::ReadConfig(reader, kv);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<nemotron_h::NemotronH>(config));
}

}  // namespace

extern const Family k_nemotron_h;
const Family k_nemotron_h = {"nemotron_h", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
