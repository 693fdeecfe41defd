// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/families/zamba2/zamba2.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"zamba2"};
constexpr std::string_view kGgufTypes[] = {"zamba2"};

constexpr PublishedSize kPublished[] = {
    {"Zamba2-1.2B", R"({"model_type": "zamba2", "hidden_size": 2048, "intermediate_size": 8192,
      "num_hidden_layers": 38, "num_attention_heads": 32, "num_key_value_heads": 32,
      "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1,
      "n_mamba_heads": 64, "num_mem_blocks": 1, "use_shared_attention_adapter": true,
      "adapter_rank": 128, "use_mem_rope": true, "vocab_size": 32000,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
      "layers_block_type": ["mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba",
        "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba",
        "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba",
        "mamba", "mamba", "mamba", "hybrid", "mamba", "mamba", "mamba", "mamba", "mamba",
        "hybrid", "mamba", "mamba"]})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  const Zamba2Config config = ReadZamba2Config(reader);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Zamba2Model>(config, kv));
}

}  // namespace

extern const Family k_zamba2;
const Family k_zamba2 = {"zamba2", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
