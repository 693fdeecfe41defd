// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/decoders/residual_stack.h"
#include "model/layers/attention.h"
#include "model/layers/mamba2.h"
#include "model/layers/mlp.h"
#include "model/layers/moe.h"

namespace reprise::nemotron_h {

enum class BlockType : uint8_t { kMamba, kAttention, kMlp, kMoe };

struct Config {
  DecoderConfig decoder;
  std::vector<BlockType> types;  // [layer_count]
  AttentionShape attention;
  Mamba2Shape mamba;
  MlpShape mlp;
  MoeShape moe;     // experts == 0: none
  MlpShape shared;  // beside the experts; hidden == 0: none
  Vocabulary::Shape vocabulary;
};

// Errors stick to the reader.
Config ReadConfig(ConfigReader* reader, DType kv);

// One mixer per block: Mamba-2, attention without positions, a feed-forward block or experts.
class NemotronH final : public ResidualStack {
 public:
  explicit NemotronH(const Config& config);

  std::string DescribeNumerics() const override;
  std::string_view gguf_architecture() const override;
  void DescribeGguf(GgufWriter* out) const override;

 private:
  Config nemotron_;
};

}  // namespace reprise::nemotron_h
