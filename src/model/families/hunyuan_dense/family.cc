// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"hunyuan_v1_dense"};
constexpr std::string_view kGgufTypes[] = {"hunyuan-dense"};

constexpr PublishedSize kPublished[] = {
    {"Hunyuan-4B", R"({"model_type": "hunyuan_v1_dense", "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 120818,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
      "tie_word_embeddings": true})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.qk_norm = traits.late_norm = true;
  traits.hf_q_norm = "query_layernorm";
  traits.hf_k_norm = "key_layernorm";
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for hunyuan_dense");
  }
  if (reader->Bool({"use_cla", ""}, false)) {
    reader->Refuse("use_cla (K/V of other layers) is not supported for hunyuan_dense");
  }
  reader->AddDefaults(R"({"rms_norm_eps": 1e-5})");
  DecoderExpectations expected;
  expected.rope.stretched_theta = true;
  DecoderConfig config = ReadDecoderConfig(reader, expected);
  config.windows.assign(size_t(config.layer_count), 0);  // none in this family, whatever is said
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_hunyuan_dense;
const Family k_hunyuan_dense = {"hunyuan_dense", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
