// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/decoder.h"
#include "model/layers/mamba2.h"

namespace reprise {

class GgufWriter;

// What Zamba2 is, beside what all decoders are. In `decoder`, heads are those of the shared blocks,
// whose input is twice as wide as the stream, and `attends` are the layers that use one.
struct Zamba2Config {
  DecoderConfig decoder;
  Mamba2Shape mamba;
  int blocks = 0;                   // shared ones, used in turn
  int64_t adapter_rank = 0;         // of what each use adds to the matrices of its block
  bool attention_adapters = false;  // to queries, keys and values, too
  bool rope = false;

  // The layers that use a block, in order.
  std::vector<int> uses() const;
  // The layer where the weights of the block lie that use number `use` is of: its first.
  int HomeOf(int use) const { return uses()[size_t(use % blocks)]; }
  int64_t input_width() const { return 2 * decoder.dim; }
};

// Errors stick to the reader.
Zamba2Config ReadZamba2Config(ConfigReader* reader);
// The same parameters as metadata of a GGUF file.
void DescribeZamba2(const Zamba2Config& config, GgufWriter* out);

}  // namespace reprise
