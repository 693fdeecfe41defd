// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>

#include "model/decoders/dense_decoder.h"
#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"smollm3"};
constexpr std::string_view kGgufTypes[] = {"smollm3"};
constexpr int kPeriod = 4;  // of layers without positions, where the file does not list them

constexpr PublishedSize kPublished[] = {
    {"SmolLM3-3B", R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
      "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
      "vocab_size": 128256, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6,
      "rope_theta": 5000000.0, "no_rope_layer_interval": 4, "use_sliding_window": false,
      "tie_word_embeddings": true})"},
};

// Which layers have positions: those that are listed, else all but every fourth.
std::vector<bool> ReadTurns(ConfigReader* reader, int layer_count) {
  const size_t count = size_t(layer_count);
  const int64_t period = reader->Int({"no_rope_layer_interval", ""}, {1, 1024}, kPeriod);
  std::vector<bool> turns(count);
  for (size_t i = 0; i < count; ++i) turns[i] = int64_t(i + 1) % period != 0;
  const ConfigKey key{"no_rope_layers", "attention.rope_pattern"};
  if (!reader->Has(key)) return turns;
  const auto listed = reader->Ints(key, 4096, {0, 1});
  if (listed.size() < count) {
    reader->Refuse("no_rope_layers does not have one entry per layer");
    return turns;
  }
  for (size_t i = 0; i < count; ++i) turns[i] = listed[i] != 0;
  return turns;
}

// llama.cpp knows every fourth only.
void DescribeTurns(const std::vector<bool>& turns, const std::string& prefix, GgufWriter* out) {
  std::vector<uint8_t> flags(turns.begin(), turns.end());
  bool periodic = true;
  for (size_t i = 0; i < flags.size(); ++i) periodic &= flags[i] == ((i + 1) % kPeriod != 0);
  if (periodic) return;
  out->PutArray<bool>(prefix + "attention.rope_pattern",
                      {reinterpret_cast<const bool*>(flags.data()), flags.size()});
}

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* reader, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.rotary_pairs_in_gguf = true;
  reader->AddDefaults(R"({"tie_word_embeddings": true, "use_sliding_window": false,
      "num_key_value_heads": 4})");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (reader->Bool({key, ""}, false)) {
      reader->Refuse(std::string(key) + " is not supported for smollm3");
    }
  }
  const auto types = reader->Texts({"layer_types", ""}, 4096);
  if (reader->Bool({"use_sliding_window", ""}, false) ||
      std::find(types.begin(), types.end(), "sliding_attention") != types.end()) {
    reader->Refuse("windows (use_sliding_window, sliding_attention) are not supported for smollm3");
  }
  DecoderExpectations expected;
  expected.rope.theta = 2000000;
  DecoderConfig config = ReadDecoderConfig(reader, expected);
  config.windows.assign(size_t(config.layer_count), 0);
  traits.turns = ReadTurns(reader, config.layer_count);
  traits.describe = [turns = traits.turns](const std::string& prefix, GgufWriter* out) {
    DescribeTurns(turns, prefix, out);
  };
  return MakeDenseDecoder(reader, config, traits, kv);
}

}  // namespace

extern const Family k_smollm3;
const Family k_smollm3 = {"smollm3", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
