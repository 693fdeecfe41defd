// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/config/reader.h"
#include "model/config/rope.h"

namespace reprise {

class GgufWriter;

// The parameters that decoders of all families share, under the names that all of them use.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t context_length = 0;
  int64_t dim = 0;     // of the residual stream
  int64_t hidden = 0;  // of the feed-forward block
  int layer_count = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float eps = 0;
  bool tied = false;          // the embedding table is also the head
  int window_period = 0;      // of every so many layers the last sees all; 0: no such pattern
  std::vector<bool> attends;  // [layer_count] layers with attention; empty: all
  std::vector<bool> slides;   // [layer_count] layers with a window, be it all of the context
  std::vector<int> windows;   // [layer_count] tokens that attention sees, itself included; 0: all
  RopeConfig rope;

  // Synthetic weights: deviation of what a block adds to the residual stream, so that activations
  // of any depth stay of order one.
  float residual_gain() const;
};

// What a family expects of a configuration.
struct DecoderExpectations {
  std::string_view activation = "silu";  // the only one it computes
  int window_period = 0;  // of models with windows that do not say which layers have them
  int window = 0;         // the same for how much they see
  bool mlp = true;        // has a feed-forward block that is no mixture of experts
  RopeExpectations rope;  // of full attention
};

// Reads and validates; errors stick to the reader. Refuses activations and rotary regimes that
// nothing here computes.
DecoderConfig ReadDecoderConfig(ConfigReader* reader, const DecoderExpectations& expected = {});

// Its parts, for families that have only some of them or name them differently.
// dim, layer_count, context_length (`context` where the file does not say) and eps.
void ReadStream(ConfigReader* reader, ConfigKey eps, int64_t context, DecoderConfig* config);
// q_heads, kv_heads and head_dim; attends where a GGUF file lists K/V heads by layer.
void ReadHeads(ConfigReader* reader, DecoderConfig* config);
// attends from `layer_types`: whether each of them is one of `attention`; any that is neither of
// these nor of `others` is refused by name.
void ReadLayerTypes(ConfigReader* reader, std::string_view key,
                    std::span<const std::string_view> attention,
                    std::span<const std::string_view> others, DecoderConfig* config);
// slides and windows; `expected` where the file does not say.
void ReadWindows(ConfigReader* reader, const DecoderExpectations& expected, DecoderConfig* config);
// vocab_size and tied; `tied` where a config.json does not say.
void ReadVocabulary(ConfigReader* reader, bool tied, DecoderConfig* config);
// Refuses any other activation.
void CheckActivation(ConfigReader* reader, std::string_view expected);

// The same parameters as metadata of a GGUF file; DescribeStream: what ReadStream reads, and the
// size of the vocabulary.
void DescribeDecoder(const DecoderConfig& config, std::string_view architecture, GgufWriter* out);
void DescribeStream(const DecoderConfig& config, std::string_view architecture, GgufWriter* out);

}  // namespace reprise
