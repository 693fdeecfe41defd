// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"gpt_oss"};
constexpr std::string_view kGgufTypes[] = {"gpt-oss"};

constexpr PublishedSize kPublished[] = {
    {"gpt-oss-20b", R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "vocab_size": 201088, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "sliding_window": 128,
      "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
      "attention_bias": true, "tie_word_embeddings": false,
      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "truncate": false, "original_max_position_embeddings": 4096}})"},
    {"gpt-oss-120b", R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "vocab_size": 201088, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "sliding_window": 128,
      "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
      "attention_bias": true, "tie_word_embeddings": false,
      "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "truncate": false, "original_max_position_embeddings": 4096}})"},
};

constexpr std::string_view kDefaults =
    R"({"rms_norm_eps": 1e-5, "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4})";
// The same for files without a word about positions.
constexpr std::string_view kDefaultPositions =
    R"({"rms_norm_eps": 1e-5, "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4,
        "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "truncate": false,
                            "original_max_position_embeddings": 4096}})";

constexpr double kAlpha = 1.702;
constexpr double kLimit = 7;

MoeShape ReadExperts(ConfigReader* reader, const DecoderConfig& config) {
  MoeShape moe = ReadMoeShape(reader, config.dim, config.residual_gain());
  // A softmax over the chosen is one over all, divided by the sum of the chosen.
  SetNormalised(reader, true, &moe);
  moe.activation = ExpertActivation::kClampedSwiGlu;
  moe.alpha = float(reader->Number({"swiglu_alpha", "swiglu_alpha"}, {0, 1e3}, kAlpha));
  moe.limit = float(reader->Number({"swiglu_limit", "swiglu_limit"}, {1e-3, 1e6}, kLimit));
  moe.alternating = true;
  moe.names.router = "mlp.router.weight";
  moe.names.router_bias = "mlp.router.bias";
  moe.names.gate_up_bias = "mlp.experts.gate_up_proj_bias";
  moe.names.down_bias = "mlp.experts.down_proj_bias";
  return moe;
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.gguf_mlp_norm = "post_attention_norm.weight";
  traits.sinks = true;
  traits.qkv_bias = reader->gguf() ? reader->FindTensor({"", "blk.0.attn_q.bias"}) != nullptr
                                   : reader->Bool({"attention_bias", ""}, true);
  traits.output_bias = traits.qkv_bias;
  const bool placed = reader->Has({"rope_parameters", ""}) || reader->Has({"rope_scaling", ""});
  reader->AddDefaults(placed ? kDefaults : kDefaultPositions);
  DecoderExpectations expected;
  expected.window_period = 2;
  expected.window = 128;
  expected.rope.theta = 150000;
  expected.rope.gguf_truncate = false;  // published files were made without, and do not say
  const DecoderConfig config = ReadDecoderConfig(reader, expected);
  traits.moe = ReadExperts(reader, config);
  traits.describe = [rope = config.rope, moe = *traits.moe](const std::string& prefix,
                                                            GgufWriter* out) {
    if (rope.scaling == RopeConfig::Scaling::kYarn && rope.truncate) {
      out->Put<bool>(prefix + "rope.scaling.yarn_truncate", true);
    }
    // Not known to llama.cpp, which has no other values.
    if (moe.alpha != float(kAlpha)) out->Put<float>(prefix + "swiglu_alpha", moe.alpha);
    if (moe.limit != float(kLimit)) out->Put<float>(prefix + "swiglu_limit", moe.limit);
  };
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_gpt_oss;
const Family k_gpt_oss = {"gpt_oss", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
