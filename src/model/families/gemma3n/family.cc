// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/families/gemma3n/gemma3n.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma3n_text", "gemma3n"};
constexpr std::string_view kGgufTypes[] = {"gemma3n"};

constexpr PublishedSize kPublished[] = {
    {"gemma-3n-E2B", R"({"model_type": "gemma3n_text", "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 30, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400,
      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
      "num_kv_shared_layers": 10, "sliding_window": 512, "laurel_rank": 64,
      "altup_num_inputs": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
      "final_logit_softcapping": 30.0, "tie_word_embeddings": true})"},
    {"gemma-3n-E4B", R"({"model_type": "gemma3n_text", "hidden_size": 2048,
      "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 262400,
      "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
      "num_kv_shared_layers": 15, "sliding_window": 512, "laurel_rank": 64,
      "altup_num_inputs": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
      "final_logit_softcapping": 30.0, "tie_word_embeddings": true})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  const Gemma3nConfig config = ReadGemma3nConfig(reader);
  REPRISE_TRY(reader->status());
  return std::unique_ptr<FamilyModel>(std::make_unique<Gemma3nModel>(config, kv));
}

}  // namespace

extern const Family k_gemma3n;
const Family k_gemma3n = {"gemma3n", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
