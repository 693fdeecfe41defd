// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"olmo3", "olmo2"};
constexpr std::string_view kGgufTypes[] = {"olmo2"};

constexpr PublishedSize kPublished[] = {
    {"Olmo-3-7B", R"({"model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11008,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
      "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0, "sliding_window": 4096, "tie_word_embeddings": false,
      "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "attention_factor": 1.2079441541679836,
                       "original_max_position_embeddings": 8192}})"},
    {"Olmo-3-32B", R"({"model_type": "olmo3", "hidden_size": 5120, "intermediate_size": 27648,
      "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
      "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0, "sliding_window": 4096, "tie_word_embeddings": false,
      "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                       "attention_factor": 1.2079441541679836,
                       "original_max_position_embeddings": 8192}})"},
};

constexpr double kTheta = 500000;

// Config files hold a regime for each kind of layer, or, in the older form, a theta for both and
// the scaling of those that see everything.
void CheckRopeForm(ConfigReader* reader) {
  if (reader->gguf()) return;
  if (reader->Has({"rope_parameters", ""})) {
    if (!reader->Has({"rope_parameters.full_attention", ""}) &&
        !reader->Has({"rope_parameters.sliding_attention", ""})) {
      reader->Refuse(
          "rope_parameters without full_attention and sliding_attention are not "
          "supported for olmo3");
    }
  } else if (reader->Number({"rope_theta", ""}, {1, 1e12}, kTheta) != kTheta) {
    reader->Refuse("rope_theta other than 500000 is only supported in rope_parameters for olmo3");
  }
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  const bool windowed = reader->gguf() ? reader->Has({"", "attention.sliding_window"})
                                       : reader->Text({"model_type", ""}, "") != "olmo2";
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.pre_norms = false;
  traits.post_norms = true;
  traits.qk_norm = traits.whole_norm = true;
  if (reader->Bool({"attention_bias", ""}, false)) {
    reader->Refuse("attention_bias is not supported for olmo3");
  }
  reader->AddDefaults(R"({"rms_norm_eps": 1e-5})");
  DecoderExpectations expected;
  if (windowed) {
    CheckRopeForm(reader);
    expected.window_period = 4;
    expected.window = 4096;
    expected.rope.member = "full_attention";
    expected.rope.theta = kTheta;
  }
  DecoderConfig config = ReadDecoderConfig(reader, expected);
  if (windowed) {
    const double theta = reader->gguf() ? config.rope.theta : kTheta;
    traits.window_rope = ReadWindowRope(reader, config.rope, {"sliding_attention", "", theta});
    // Files have to tell these layers from the others, be their window all of the context.
    for (size_t i = 0; i < config.windows.size(); ++i) {
      if (config.slides[i] && config.windows[i] == 0) {
        config.windows[i] = int(config.context_length);
      }
    }
  } else {
    config.windows.assign(size_t(config.layer_count), 0);
  }
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_olmo3;
const Family k_olmo3 = {"olmo3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
