// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"glm4_moe"};
constexpr std::string_view kGgufTypes[] = {"glm4moe"};

constexpr PublishedSize kPublished[] = {
    {"GLM-4.5-Air", R"({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
      "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151552, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "partial_rotary_factor": 0.5,
      "attention_bias": true, "use_qk_norm": false, "n_routed_experts": 128,
      "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
      "first_k_dense_replace": 1, "tie_word_embeddings": false})"},
    {"GLM-4.7", R"({"model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288,
      "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151552, "max_position_embeddings": 202752,
      "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "partial_rotary_factor": 0.5,
      "attention_bias": true, "use_qk_norm": true, "n_routed_experts": 160,
      "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
      "first_k_dense_replace": 3, "tie_word_embeddings": false})"},
};

MoeShape ReadExperts(ConfigReader* reader, const DecoderConfig& config) {
  MoeShape moe = ReadMoeShape(reader, config.dim, config.residual_gain(), ExpertScore::kSigmoid);
  ReadExpertGroups(reader, &moe);
  const int64_t shared = reader->Int({"n_shared_experts", "expert_shared_count"}, {0, 64}, 1);
  moe.shared_hidden = shared * moe.hidden;
  moe.names.selection_bias = "mlp.gate.e_score_correction_bias";
  moe.names.shared = "mlp.shared_experts";
  return moe;
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.gguf_mlp_norm = "post_attention_norm.weight";
  traits.qkv_bias = reader->gguf() ? reader->FindTensor({"", "blk.0.attn_q.bias"}) != nullptr
                                   : reader->Bool({"attention_bias", ""}, false);
  traits.qk_norm = reader->gguf() ? reader->FindTensor({"", "blk.0.attn_q_norm.weight"}) != nullptr
                                  : reader->Bool({"use_qk_norm", ""}, false);
  reader->AddDefaults(R"({"partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5})");
  DecoderExpectations expected;
  expected.rope.partial = true;
  DecoderConfig config = ReadDecoderConfig(reader, expected);
  config.windows.assign(size_t(config.layer_count), 0);  // none in this family, whatever is said
  traits.moe = ReadExperts(reader, config);
  const int64_t dense = reader->Int({"first_k_dense_replace", "leading_dense_block_count"},
                                    {0, 4096}, reader->gguf() ? 0 : 1);
  for (int i = 0; i < config.layer_count; ++i) traits.sparse.push_back(i >= dense);
  traits.mtp = ReadsMtpLayer(reader);
  const int64_t shared = traits.moe->shared_hidden / traits.moe->hidden;
  traits.describe = [dense, shared, moe = *traits.moe](const std::string& prefix, GgufWriter* out) {
    out->Put<uint32_t>(prefix + "leading_dense_block_count", uint32_t(dense));
    out->Put<uint32_t>(prefix + "expert_shared_count", uint32_t(shared));
    DescribeExpertGroups(moe, prefix, out);
  };
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_glm4_moe;
const Family k_glm4_moe = {"glm4_moe", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
