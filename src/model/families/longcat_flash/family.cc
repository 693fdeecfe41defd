// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <memory>

#include "model/families/longcat_flash/longcat_flash.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"longcat_flash"};
constexpr std::string_view kGgufTypes[] = {"longcat-flash"};

constexpr PublishedSize kPublished[] = {
    {"LongCat-Flash", R"({"model_type": "longcat_flash", "hidden_size": 6144,
      "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "num_layers": 28,
      "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity",
      "moe_topk": 12, "routed_scaling_factor": 6.0, "rms_norm_eps": 1e-5,
      "rope_theta": 10000000.0, "max_position_embeddings": 131072, "vocab_size": 131072,
      "tie_word_embeddings": false})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  REPRISE_ASSIGN(const longcat_flash::Config config, longcat_flash::ReadConfig(reader, kv));
  return std::unique_ptr<FamilyModel>(std::make_unique<longcat_flash::LongcatFlash>(config));
}

}  // namespace

extern const Family k_longcat_flash;
const Family k_longcat_flash = {"longcat_flash", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
