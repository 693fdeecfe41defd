// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/gemma.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"gemma3_text", "gemma3"};
constexpr std::string_view kGgufTypes[] = {"gemma3"};

constexpr PublishedSize kPublished[] = {
    {"gemma-3-1b", R"({"model_type": "gemma3_text", "hidden_size": 1152,
      "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "rope_local_base_freq": 10000.0, "sliding_window": 512, "sliding_window_pattern": 6,
      "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh",
      "tie_word_embeddings": true})"},
};

// Checkpoints with images leave out what is as in the first of them.
constexpr std::string_view kDefaults = R"({"num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  GemmaVariant variant;
  variant.gguf_architecture = kGgufTypes[0];
  variant.expected.window_period = 6;
  variant.expected.window = 4096;
  variant.expected.rope.member = "full_attention";
  variant.expected.rope.theta = 1000000;
  variant.defaults = kDefaults;
  variant.wide_layers = 62;
  variant.qk_norm = true;
  variant.whole_pictures = true;
  variant.window_rope_member = "sliding_attention";
  if (reader->Has({"attn_logit_softcapping", "attn_logit_softcapping"})) {
    reader->Refuse("attn_logit_softcapping is not supported for gemma3");
  }
  if (reader->Bool({"use_bidirectional_attention", ""}, false)) {
    reader->Refuse("use_bidirectional_attention is not supported for gemma3");
  }
  return MakeGemma(reader, variant, kv);
}

}  // namespace

extern const Family k_gemma3;
const Family k_gemma3 = {"gemma3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
