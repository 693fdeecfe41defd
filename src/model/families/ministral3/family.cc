// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <optional>
#include <string>

#include "model/decoders/dense_decoder.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"ministral3", "mistral3"};
constexpr std::string_view kGgufTypes[] = {"mistral3"};

constexpr PublishedSize kPublished[] = {
    {"Ministral-3-3B", R"({"model_type": "ministral3", "hidden_size": 3072,
      "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})"},
    {"Ministral-3-8B", R"({"model_type": "ministral3", "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
      "max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})"},
};

// What Transformers takes where config.json of a ministral3 does not say; of its positions, where
// it says nothing at all.
constexpr std::string_view kDefaults = R"({"rms_norm_eps": 1e-5, "head_dim": 128})";
constexpr std::string_view kDefaultPositions = R"({"rms_norm_eps": 1e-5, "head_dim": 128,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})";

// Of the growth of queries, whose period is the context before YaRN.
double ReadBeta(ConfigReader* reader, const RopeConfig& rope) {
  const std::string member =
      reader->Has({"rope_parameters", ""}) ? "rope_parameters." : "rope_scaling.";
  const double beta =
      reader->Number({member + "llama_4_scaling_beta", "attention.temperature_scale"}, {0, 100},
                     reader->gguf() ? std::optional(0.0) : std::nullopt);
  const bool yarn = rope.scaling == RopeConfig::Scaling::kYarn;
  if (!yarn && (beta != 0 || !reader->gguf())) {
    reader->Refuse("ministral3 has no rope_type but yarn");
  }
  return beta;
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.rotary_pairs_in_gguf = true;
  const std::string type = reader->Text({"model_type", ""}, "");
  const bool scaled = reader->gguf() || type == "ministral3";
  if (!scaled && type != "mistral") {
    reader->Refuse("text models of type '" + type +
                   "' are not supported in mistral3 (known: ministral3, mistral)");
  }
  if (type == "ministral3") {
    const bool positions =
        reader->Has({"rope_parameters", ""}) || reader->Has({"rope_scaling", ""});
    reader->AddDefaults(positions ? kDefaults : kDefaultPositions);
  }
  if (reader->Has({"", "expert_count"})) {
    reader->Refuse("mixtures of experts are not supported for ministral3");
  }
  const DecoderConfig config = ReadDecoderConfig(reader);
  if (const double beta = scaled ? ReadBeta(reader, config.rope) : 0; beta != 0) {
    traits.query_growth = {float(beta), int64_t(config.rope.original_context)};
    traits.describe = [beta](const std::string& prefix, GgufWriter* out) {
      out->Put<float>(prefix + "attention.temperature_scale", float(beta));
    };
  }
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_ministral3;
const Family k_ministral3 = {"ministral3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
