// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/qwen_seeing.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"qwen3_vl_moe", "qwen3_vl_moe_text"};
constexpr std::string_view kGgufTypes[] = {"qwen3vlmoe"};

constexpr PublishedSize kPublished[] = {
    {"Qwen3-VL-30B-A3B", R"({"model_type": "qwen3_vl_moe_text", "hidden_size": 2048,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "num_hidden_layers": 48, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
      "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0,
        "mrope_section": [24, 20, 20]}})"},
};

// Folders as published have experts as [experts, in, out]; those that Transformers writes since
// have them as other families do.
bool AreTurned(const ConfigReader& reader, const MoeShape& moe) {
  const StoredTensor* down =
      reader.FindTensor({"model.language_model.layers.0.mlp.experts.down_proj", ""});
  return down != nullptr && down->shape.rank() == 3 && down->shape[1] == moe.hidden &&
         down->shape[2] == moe.dim;
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DecoderExpectations expected;
  expected.mlp = !reader->gguf();
  DecoderConfig config = ReadDecoderConfig(reader, expected);
  DenseTraits traits = MakeSeeingTraits(reader, kGgufTypes[0], &config);
  traits.moe = ReadMoeShape(reader, config.dim, config.residual_gain());
  traits.moe->turned = AreTurned(*reader, *traits.moe);
  // The weights of the chosen always add up to one; older folders say so.
  if (!reader->Bool({"norm_topk_prob", "expert_weights_norm"}, true)) {
    reader->Refuse("experts whose weights do not add up to one are not supported here");
  }
  traits.moe->routing.renormalise = true;
  traits.sparse = ReadSparseLayers(reader, config.layer_count);
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_qwen3_vl_moe;
const Family k_qwen3_vl_moe = {"qwen3_vl_moe", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
