// SPDX-License-Identifier: Apache-2.0
#include "model/config/decoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "weights/format/gguf_writer.h"

namespace reprise {
namespace {

constexpr IntRange kDim{1, int64_t{1} << 20};
constexpr IntRange kHidden{1, int64_t{1} << 22};
constexpr IntRange kLayers{1, 1024};
constexpr IntRange kHeads{1, 4096};
constexpr IntRange kHeadDim{2, 1024};

// GGUF files of hybrids list the K/V heads of each layer: 0 where it does not attend.
void ReadKvHeads(ConfigReader* reader, ConfigKey key, DecoderConfig* config) {
  const auto listed = reader->Ints(key, kLayers.max, {0, kHeads.max});
  const size_t count = size_t(config->layer_count);
  if (listed.size() < count) {
    reader->Refuse("the list of K/V heads does not have one entry per layer");
  }
  config->kv_heads = 0;
  std::vector<bool> attends(count, false);
  for (size_t i = 0; i < count && i < listed.size(); ++i) {
    attends[i] = listed[i] != 0;
    if (listed[i] == 0 || listed[i] == config->kv_heads) continue;
    if (config->kv_heads != 0) reader->Refuse("layers with different K/V heads are not supported");
    config->kv_heads = int(listed[i]);
  }
  if (config->kv_heads == 0) config->kv_heads = config->q_heads;
  if (std::find(attends.begin(), attends.end(), false) != attends.end()) config->attends = attends;
}

}  // namespace

float DecoderConfig::residual_gain() const { return 1 / std::sqrt(2 * float(layer_count)); }

void ReadStream(ConfigReader* reader, ConfigKey eps, int64_t context, DecoderConfig* config) {
  config->dim = reader->Int({"hidden_size", "embedding_length"}, kDim);
  const ConfigKey count{"num_hidden_layers", "block_count"};
  std::optional<int64_t> listed;  // some files list the types of layers instead of counting them
  if (!reader->Has(count) && reader->Has({"layers_block_type", ""})) {
    listed = int64_t(reader->Texts({"layers_block_type", ""}, size_t(kLayers.max)).size());
  }
  const int64_t blocks = std::max<int64_t>(1, reader->Int(count, kLayers, listed));
  // GGUF counts the blocks that predict further tokens, which are not run here.
  const int64_t predictors = reader->Int({"", "nextn_predict_layers"}, {0, kLayers.max}, 0);
  if (predictors >= blocks) reader->Refuse("all blocks of the model are next-token predictors");
  config->layer_count = int(blocks > predictors ? blocks - predictors : 1);
  const std::optional<int64_t> fallback =
      context != 0 ? std::optional<int64_t>(context) : std::nullopt;
  config->context_length =
      reader->Int({"max_position_embeddings", "context_length"}, {1, int64_t{1} << 30}, fallback);
  config->context_length = ServedContext(reader, config->context_length);
  config->eps = float(reader->Number(eps, {0, 1}));
  if (!reader->Bool({"", "attention.causal"}, true)) {
    reader->Refuse("models whose tokens see later ones (attention.causal) are not supported");
  }
}

// Which layers see only a window: those that are listed; else all but every window_period-th; else
// all, or those from max_window_layers on where a model says so.
void ReadWindows(ConfigReader* reader, const DecoderExpectations& expected, DecoderConfig* config) {
  const size_t count = size_t(config->layer_count);
  config->windows.assign(count, 0);
  config->slides.assign(count, false);
  const int64_t window = reader->Int({"sliding_window", "attention.sliding_window"},
                                     {0, int64_t{1} << 40}, expected.window);
  const bool used = reader->Bool({"use_sliding_window", ""}, true);
  const auto types = reader->Texts({"layer_types", ""}, 4096);
  if (!types.empty() && types.size() != count) {
    reader->Refuse("layer_types does not have one entry per layer");
  }
  if (!used || window == 0) return;
  const bool newer = reader->Has({"sliding_window_pattern", ""});
  const ConfigKey pattern{newer ? "sliding_window_pattern" : "_sliding_window_pattern",
                          "attention.sliding_window_pattern"};
  const bool listed = reader->IsArray(pattern);
  const auto flags = listed ? reader->Ints(pattern, 4096, {0, 1}) : std::vector<int64_t>{};
  const int64_t period =
      listed ? 0 : reader->Int(pattern, {0, int64_t{kLayers.max}}, expected.window_period);
  config->window_period = int(period);
  const int64_t first = reader->Int({"max_window_layers", ""}, {0, 4096}, 0);
  for (size_t i = 0; i < count; ++i) {
    const bool slides = period > 0 ? int64_t(i) % period < period - 1
                                   : !listed && types.empty() && int64_t(i) >= first;
    const bool named = i < types.size()   ? types[i] == "sliding_attention"
                       : i < flags.size() ? flags[i] != 0
                                          : slides;
    if (named != slides) config->window_period = 0;
    config->slides[i] = named;
    if (named && window < config->context_length) config->windows[i] = int(window);
  }
}

void ReadHeads(ConfigReader* reader, DecoderConfig* config) {
  config->q_heads = int(reader->Int({"num_attention_heads", "attention.head_count"}, kHeads));
  const ConfigKey kv_heads{"num_key_value_heads", "attention.head_count_kv"};
  if (reader->gguf() && reader->IsArray(kv_heads)) {
    ReadKvHeads(reader, kv_heads, config);
  } else {
    config->kv_heads = int(reader->Int(kv_heads, kHeads, config->q_heads));
  }
  const ConfigKey head_dim{"head_dim", "attention.key_length"};
  if (!reader->Has(head_dim) && config->dim % config->q_heads != 0) {
    reader->Refuse("width " + std::to_string(config->dim) + " is not divisible by " +
                   std::to_string(config->q_heads) + " attention heads");
  }
  config->head_dim = int(reader->Int(head_dim, kHeadDim, config->dim / config->q_heads));
  if (config->q_heads % config->kv_heads != 0) {
    reader->Refuse(std::to_string(config->q_heads) + " attention heads cannot share " +
                   std::to_string(config->kv_heads) + " K/V heads evenly");
  }
  const int64_t value_dim = reader->Int({"", "attention.value_length"}, kHeadDim, config->head_dim);
  if (value_dim != config->head_dim || config->head_dim % 2 != 0) {
    reader->Refuse("heads of width " + std::to_string(config->head_dim) + " with values of width " +
                   std::to_string(value_dim) + " are not supported");
  }
}

void ReadLayerTypes(ConfigReader* reader, std::string_view key,
                    std::span<const std::string_view> attention,
                    std::span<const std::string_view> others, DecoderConfig* config) {
  const auto types = reader->Texts({key, ""}, kLayers.max);
  if (types.size() != size_t(config->layer_count)) {
    reader->Refuse(std::string(key) + " does not have one entry per layer");
  }
  config->attends.assign(size_t(config->layer_count), false);
  for (size_t i = 0; i < types.size() && i < config->attends.size(); ++i) {
    const auto is_in = [&](std::span<const std::string_view> names) {
      return std::find(names.begin(), names.end(), types[i]) != names.end();
    };
    config->attends[i] = is_in(attention);
    if (!config->attends[i] && !is_in(others)) {
      reader->Refuse("layer type '" + types[i] + "' is not supported here");
    }
  }
}

void ReadVocabulary(ConfigReader* reader, bool tied, DecoderConfig* config) {
  const StoredTensor* table = reader->FindTensor({"", "token_embd.weight"});
  const bool by_table = table != nullptr && table->shape.rank() == 2;
  config->vocab_size =
      by_table ? table->shape[0] : reader->Int({"vocab_size", "vocab_size"}, kAnySize);
  if (config->vocab_size > kAnySize.max) reader->Refuse("the vocabulary is too large");
  // A head that is there is meant, whatever config.json says.
  config->tied = reader->FindTensor({"lm_head.weight", "output.weight"}) == nullptr &&
                 reader->FindTensor({"language_model.lm_head.weight", ""}) == nullptr &&
                 (reader->gguf() || reader->Bool({"tie_word_embeddings", ""}, tied));
}

void CheckActivation(ConfigReader* reader, std::string_view expected) {
  const bool newer = reader->Has({"hidden_activation", ""});
  std::string name =
      reader->Text({newer ? "hidden_activation" : "hidden_act", ""}, std::string(expected));
  if (name == "swish") name = "silu";
  if (name != expected) {
    reader->Refuse("activation '" + name + "' is not supported here (only " +
                   std::string(expected) + " is)");
  }
}

DecoderConfig ReadDecoderConfig(ConfigReader* reader, const DecoderExpectations& expected) {
  DecoderConfig config;
  ReadStream(reader, {"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, 0, &config);
  if (expected.mlp) {
    config.hidden = reader->Int({"intermediate_size", "feed_forward_length"}, kHidden);
  }
  ReadHeads(reader, &config);
  CheckActivation(reader, expected.activation);
  ReadWindows(reader, expected, &config);
  config.rope = ReadRopeConfig(reader, config.head_dim, expected.rope);
  ReadVocabulary(reader, false, &config);
  return config;
}

void DescribeStream(const DecoderConfig& config, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  put("context_length", config.context_length);
  put("embedding_length", config.dim);
  put("block_count", config.layer_count);
  put("vocab_size", config.vocab_size);
  out->Put<float>(prefix + "attention.layer_norm_rms_epsilon", config.eps);
}

void DescribeDecoder(const DecoderConfig& config, std::string_view architecture, GgufWriter* out) {
  const std::string prefix = std::string(architecture) + ".";
  const auto put = [&](const char* key, int64_t value) {
    out->Put<uint32_t>(prefix + key, uint32_t(value));
  };
  DescribeStream(config, architecture, out);
  if (config.hidden != 0) put("feed_forward_length", config.hidden);
  put("attention.head_count", config.q_heads);
  if (config.attends.empty()) {
    put("attention.head_count_kv", config.kv_heads);
  } else {
    std::vector<int32_t> heads;
    for (const bool attends : config.attends) heads.push_back(attends ? config.kv_heads : 0);
    out->PutArray<int32_t>(prefix + "attention.head_count_kv", heads);
  }
  put("attention.key_length", config.head_dim);
  put("attention.value_length", config.head_dim);
  if (config.rope.rotary_dim != 0) DescribeRope(config.rope, prefix, out);
  const auto windowed = std::find_if(config.windows.begin(), config.windows.end(),
                                     [](int window) { return window != 0; });
  if (windowed != config.windows.end()) {
    put("attention.sliding_window", *windowed);
    if (config.window_period != 0) {
      put("attention.sliding_window_pattern", config.window_period);
    } else {
      std::vector<uint8_t> flags;
      for (const int window : config.windows) flags.push_back(window != 0 ? 1 : 0);
      out->PutArray<bool>(prefix + "attention.sliding_window_pattern",
                          {reinterpret_cast<const bool*>(flags.data()), flags.size()});
    }
  }
}

}  // namespace reprise
