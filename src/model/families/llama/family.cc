// SPDX-License-Identifier: Apache-2.0
#include "model/family.h"

#include <algorithm>

#include "model/decoders/dense_decoder.h"

namespace reprise {
namespace {

constexpr std::string_view kHfTypes[] = {"llama", "mistral"};
constexpr std::string_view kGgufTypes[] = {"llama"};

constexpr PublishedSize kPublished[] = {
    {"Llama-3.2-1B", R"({"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "tie_word_embeddings": true,
      "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
    {"Llama-3.1-8B", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "tie_word_embeddings": false,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})"},
};

Result<std::unique_ptr<FamilyModel>> Make(ConfigReader* config, DType kv) {
  DenseTraits traits;
  traits.gguf_architecture = kGgufTypes[0];
  traits.rotary_pairs_in_gguf = true;
  // config.json says whether there are biases; GGUF files simply have them.
  traits.qkv_bias = config->gguf() ? config->FindTensor({"", "blk.0.attn_q.bias"}) != nullptr
                                   : config->Bool({"attention_bias", ""}, false);
  traits.output_bias = config->gguf()
                           ? config->FindTensor({"", "blk.0.attn_output.bias"}) != nullptr
                           : traits.qkv_bias;
  if (config->Bool({"mlp_bias", ""}, false)) {
    config->Refuse("mlp_bias is not supported for llama");
  }
  if (config->Has({"num_local_experts", "expert_count"})) {
    config->Refuse("mixtures of experts are not supported for llama");
  }
  const DecoderConfig decoder = ReadDecoderConfig(config);
  const auto windowed = [](int window) { return window != 0; };
  if (config->Text({"model_type", ""}, "") == "llama" &&
      std::any_of(decoder.windows.begin(), decoder.windows.end(), windowed)) {
    config->Refuse("sliding_window is not supported for llama (mistral has it)");
  }
  return MakeDenseDecoder(config, decoder, traits, kv);
}

}  // namespace

extern const Family k_llama;
const Family k_llama = {"llama", kHfTypes, kGgufTypes, kPublished, Make};

}  // namespace reprise
