// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"phi3"};
constexpr std::string_view kGgufTypes[] = {"phi3"};

constexpr PublishedSize kPublished[] = {
    {"Phi-3-mini-4k", R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
      "vocab_size": 32064, "max_position_embeddings": 4096,
      "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "sliding_window": 2047, "tie_word_embeddings": false})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.fused = true;
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for phi3");
  }
  reader->AddDefaults(R"({"original_max_position_embeddings": 4096})");
  DecoderExpectations expected;
  expected.rope.partial = true;
  const DecoderConfig config = ReadDecoderConfig(reader, expected);
  if (config.rope.scaling != RopeConfig::Scaling::kNone &&
      config.rope.scaling != RopeConfig::Scaling::kLongRope) {
    reader->Refuse("phi3 has no rope_type but default and longrope");
  }
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_phi3;
const Family k_phi3 = {"phi3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
