// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/decoder.h"

namespace reprise {

class GgufWriter;

// What Gemma 3n is, beside what all decoders are. In `decoder`, rope is that of the layers that see
// everything.
struct Gemma3nConfig {
  DecoderConfig decoder;
  RopeConfig window_rope;
  int shared_layers = 0;        // the last ones: they attend to K/V of an earlier layer
  std::vector<int64_t> hidden;  // of the feed-forward block, by layer
  std::vector<float> cuts;      // MlpShape::cut, by layer
  int64_t layer_dim = 0;        // of the embeddings for each layer
  int64_t layer_tokens = 0;     // that have such embeddings; the others have those of token 0
  int streams = 0;
  int active = 0;              // the stream that layers compute on
  bool scaled_output = false;  // the active stream is scaled before it is gated
  int64_t laurel_rank = 0;
  float logit_softcap = 0;

  bool shares(int layer) const { return layer >= decoder.layer_count - shared_layers; }
  // The layer whose K/V `layer` attends to: itself, or the last of its kind that has some.
  int ProducerOf(int layer) const;
};

// Errors stick to the reader.
Gemma3nConfig ReadGemma3nConfig(ConfigReader* reader);
// The same parameters as metadata of a GGUF file.
void DescribeGemma3n(const Gemma3nConfig& config, GgufWriter* out);

// Below which share `part` of a normal distribution lies, in deviations from its mean; 0: -inf.
double NormalQuantile(double part);

}  // namespace reprise
