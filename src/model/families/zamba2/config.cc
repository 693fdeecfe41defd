// SPDX-License-Identifier: Apache-2.0
#include "model/families/zamba2/config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr std::string_view kUsing[] = {"hybrid"};
constexpr std::string_view kPlain[] = {"mamba", "linear_attention"};

// What config.json may leave out.
constexpr std::string_view kDefaults = R"({"num_attention_heads": 32, "mamba_d_state": 64,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8,
    "time_step_min": 0.001, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "vocab_size": 32000, "num_mem_blocks": 1, "adapter_rank": 128})";

// The eps of the norm behind the scan, whatever config.json says of the others.
constexpr float kScanEps = 1e-5f;

void ReadHeads(ConfigReader* reader, Zamba2Config* config) {
  DecoderConfig& decoder = config->decoder;
  decoder.q_heads = int(reader->Int({"num_attention_heads", "attention.head_count"}, {1, 4096}));
  decoder.kv_heads = int(
      reader->Int({"num_key_value_heads", "attention.head_count_kv"}, {1, 4096}, decoder.q_heads));
  if (config->input_width() % decoder.q_heads != 0 || decoder.q_heads % decoder.kv_heads != 0) {
    reader->Refuse(std::to_string(decoder.q_heads) + " attention heads with " +
                   std::to_string(decoder.kv_heads) + " K/V heads do not divide a width of " +
                   std::to_string(config->input_width()));
  }
  decoder.head_dim = int(std::clamp<int64_t>(config->input_width() / decoder.q_heads, 2, 1024));
  if (decoder.head_dim % 2 != 0 ||
      config->input_width() != int64_t{decoder.q_heads} * decoder.head_dim) {
    reader->Refuse("num_attention_heads " + std::to_string(decoder.q_heads) +
                   " leaves heads of an odd or too large width");
    decoder.head_dim = 2;
  }
}

void ReadBlocks(ConfigReader* reader, Zamba2Config* config) {
  DecoderConfig& decoder = config->decoder;
  if (reader->gguf()) {
    const auto flags = reader->Ints({"", "shared_block_layers"}, 4096, {0, 1});
    if (flags.size() != size_t(decoder.layer_count)) {
      reader->Refuse("shared_block_layers does not have one entry per layer");
    }
    decoder.attends.assign(size_t(decoder.layer_count), false);
    for (size_t i = 0; i < flags.size() && i < decoder.attends.size(); ++i) {
      decoder.attends[i] = flags[i] != 0;
    }
  } else if (reader->Has({"layers_block_type", ""})) {
    ReadLayerTypes(reader, "layers_block_type", kUsing, kPlain, &decoder);
  } else {
    ReadLayerTypes(reader, "layer_types", kUsing, kPlain, &decoder);
  }
  const int uses = int(config->uses().size());
  const int64_t blocks = reader->Int({"num_mem_blocks", "shared_block_count"}, {1, 1024});
  if (uses == 0) {
    reader->Refuse("zamba2 without a layer of type 'hybrid' is not supported");
    decoder.attends[0] = true;
  }
  config->blocks = int(std::min<int64_t>(blocks, std::max(uses, 1)));
  config->adapter_rank = reader->Int({"adapter_rank", "adapter_rank"}, {1, 1 << 20});
  config->attention_adapters =
      reader->Bool({"use_shared_attention_adapter", "attention.adapters"}, false);
  if (config->attention_adapters && decoder.kv_heads != decoder.q_heads) {
    reader->Refuse(
        "use_shared_attention_adapter needs num_key_value_heads to be "
        "num_attention_heads");  // Transformers fails on it
  }
}

void ReadMamba(ConfigReader* reader, Zamba2Config* config) {
  Mamba2Shape& mamba = config->mamba;
  mamba.dim = config->decoder.dim;
  mamba.eps = kScanEps;
  mamba.residual_gain = config->decoder.residual_gain();
  Mamba2Keys keys;
  keys.heads = "n_mamba_heads";
  keys.groups = "mamba_ngroups";
  keys.bias = "add_bias_linear";
  keys.conv_bias = "";  // it is there, whatever use_conv_bias says
  keys.head_dim = "";
  if (!reader->gguf()) {
    const int64_t heads = reader->Int({"n_mamba_heads", ""}, {1, 4096});
    const double inner =
        reader->Number({"mamba_expand", ""}, {1e-3, 1e3}) * double(config->decoder.dim);
    mamba.head_dim = int(std::clamp<int64_t>(int64_t(inner) / heads, 1, 4096));
    if (int64_t(inner) != heads * mamba.head_dim) {
      reader->Refuse("n_mamba_heads " + std::to_string(heads) + " and mamba_expand do not fit");
    }
  }
  ReadMamba2Shape(reader, keys, &mamba);
  if (!reader->gguf()) mamba.step_min = float(reader->Number({"time_step_min", ""}, {0, 1e6}));
}

// What Transformers writes though it follows from the rest.
void CheckDerived(ConfigReader* reader, const Zamba2Config& config) {
  const auto check = [&](const char* key, int64_t value) {
    if (reader->Int({key, ""}, {0, int64_t{1} << 40}, value) != value) {
      reader->Refuse(std::string(key) + " other than " + std::to_string(value) +
                     " is not supported for this zamba2");
    }
  };
  check("attention_head_dim", config.decoder.head_dim);
  check("head_dim", config.decoder.head_dim);
  check("attention_hidden_size", config.input_width());
  check("mamba_headdim", config.mamba.head_dim);
  if (!reader->Has({"hybrid_layer_ids", ""})) return;
  const auto listed = reader->Ints({"hybrid_layer_ids", ""}, 4096, {0, 4096});
  const std::vector<int> uses = config.uses();
  if (!std::equal(listed.begin(), listed.end(), uses.begin(), uses.end())) {
    reader->Refuse("hybrid_layer_ids other than the layers of type 'hybrid' is not supported");
  }
}

}  // namespace

std::vector<int> Zamba2Config::uses() const {
  std::vector<int> layers;
  for (int i = 0; i < decoder.layer_count; ++i) {
    if (decoder.attends[size_t(i)]) layers.push_back(i);
  }
  return layers;
}

Zamba2Config ReadZamba2Config(ConfigReader* reader) {
  reader->AddDefaults(kDefaults);
  Zamba2Config config;
  DecoderConfig& decoder = config.decoder;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &decoder);
  ReadHeads(reader, &config);
  decoder.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, {1, int64_t{1} << 22},
                               4 * decoder.dim);
  ReadVocabulary(reader, true, &decoder);
  CheckActivation(reader, "gelu");
  ReadBlocks(reader, &config);
  ReadMamba(reader, &config);
  CheckDerived(reader, config);
  config.rope = reader->Bool({"use_mem_rope", "attention.rope"}, false);
  // Longer positions are in its parameters already.
  if (reader->Bool({"use_long_context", ""}, false)) decoder.context_length = 16384;
  if (config.rope) decoder.rope = ReadRopeConfig(reader, decoder.head_dim);
  return config;
}

void DescribeZamba2(const Zamba2Config& config, GgufWriter* out) {
  const DecoderConfig& decoder = config.decoder;
  const std::string prefix = "zamba2.";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  DescribeStream(decoder, "zamba2", out);
  DescribeMamba2(config.mamba, "zamba2", out);
  put("feed_forward_length", decoder.hidden);
  put("attention.head_count", decoder.q_heads);
  put("attention.head_count_kv", decoder.kv_heads);
  put("shared_block_count", config.blocks);
  put("adapter_rank", config.adapter_rank);
  std::vector<uint8_t> flags;
  for (const bool uses : decoder.attends) flags.push_back(uses ? 1 : 0);
  out->PutArray<bool>(prefix + "shared_block_layers",
                      {reinterpret_cast<const bool*>(flags.data()), flags.size()});
  out->Put<bool>(prefix + "attention.adapters", config.attention_adapters);
  out->Put<bool>(prefix + "attention.rope", config.rope);
  if (config.rope) DescribeRope(decoder.rope, prefix, out);
}

}  // namespace reprise
