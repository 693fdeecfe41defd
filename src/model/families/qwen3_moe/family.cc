// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_moe"};
constexpr std::string_view kGgufTypes[] = {"qwen3moe"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3-30B-A3B", R"({"model_type": "qwen3_moe", "hidden_size": 2048,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.qk_norm = true;
  DecoderExpectations expected;
  expected.mlp = !reader->gguf();
  const DecoderConfig config = ReadDecoderConfig(reader, expected);
  traits.moe = ReadMoeShape(reader, config.dim, config.residual_gain());
  traits.moe->routing.renormalise =
      reader->Bool({"norm_topk_prob", "expert_weights_norm"}, reader->gguf());
  traits.sparse = ReadSparseLayers(reader, config.layer_count);
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for qwen3_moe");
  }
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_qwen3_moe;
const Family k_qwen3_moe = {"qwen3_moe", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
