// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/gemma.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma2"};
constexpr std::string_view kGgufTypes[] = {"gemma2"};

constexpr PublishedSize kPublished[] = {
    {"gemma-2-2b", R"({"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216,
      "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
      "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096,
      "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
      "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh",
      "tie_word_embeddings": true})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  GemmaVariant variant;
  variant.gguf_architecture = kGgufTypes[0];
  variant.expected.window_period = 2;
  variant.expected.window = 4096;
  variant.wide_layers = 46;
  variant.attention_softcap = 50;
  variant.logit_softcap = 30;
  return MakeGemma(reader, variant, kv);
}

}  // namespace

extern const Family k_gemma2;
const Family k_gemma2 = {"gemma2", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
