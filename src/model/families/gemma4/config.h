// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/config/decoder.h"
#include "model/layers/moe.h"

namespace reprise {

// Heads of one kind of layers: those with a window, or those that see everything.
struct Gemma4Heads {
  int kv_heads = 0;
  int head_dim = 0;
  RopeConfig rope;
};

// What Gemma 4 is, beside what all decoders are. In `decoder`, heads and rope are those of the
// layers that see everything.
struct Gemma4Config {
  DecoderConfig decoder;
  Gemma4Heads all;
  Gemma4Heads window;
  bool value_is_key = false;    // in layers that see everything
  bool whole_pictures = false;  // rows of a picture see all of it, in layers with a window
  int shared_layers = 0;        // the last ones: they attend to K/V of an earlier layer
  std::vector<int64_t> hidden;  // of the feed-forward block, by layer
  int64_t layer_dim = 0;        // of the embeddings for each layer; 0: there are none
  std::optional<MoeShape> moe;  // beside the feed-forward block
  float logit_softcap = 0;

  const Gemma4Heads& heads(int layer) const { return decoder.slides[size_t(layer)] ? window : all; }
  bool shares(int layer) const { return layer >= decoder.layer_count - shared_layers; }
  // The layer whose K/V `layer` attends to: itself, or the last of its kind that has some.
  int ProducerOf(int layer) const;
};

// Errors stick to the reader.
Gemma4Config ReadGemma4Config(ConfigReader* reader);
// The same parameters as metadata of a GGUF file.
void DescribeGemma4(const Gemma4Config& config, GgufWriter* out);

}  // namespace reprise
