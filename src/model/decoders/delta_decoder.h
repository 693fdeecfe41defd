// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config/decoder.h"
#include "model/config/reader.h"
#include "model/decoders/residual_stack.h"
#include "model/layers/attention.h"
#include "model/layers/gated_delta_net.h"
#include "model/layers/moe.h"

namespace reprise {

// What distinguishes the hybrids of gated delta rule and gated attention.
struct DeltaVariant {
  std::string_view name;  // of the family, for messages
  std::string_view gguf_architecture;
  bool moe = false;
  bool joined_inputs = false;  // Qwen3-Next: q, k, v and z of a key head in one matrix
};

struct DeltaDecoderConfig {
  DeltaVariant variant;
  DecoderConfig decoder;
  std::vector<bool> recurrent;  // per layer: GatedDeltaNet, else gated attention
  GatedDeltaNetShape delta;
  AttentionShape attention;
  std::optional<MoeShape> moe;
  std::vector<bool> sparse;  // with moe: which layers have it
  std::string mtp;           // what stands before the names of the block; empty: there is none
  int full_interval = 0;     // every so many layers one attends; 0: no such pattern
  std::vector<int64_t> rope_sections;  // empty: plain rotary positions
};

Result<DeltaDecoderConfig> ReadDeltaDecoderConfig(ConfigReader* reader, const DeltaVariant& variant,
                                                  DType kv);

// A hybrid decoder: most layers mix tokens with a gated delta rule, every fourth attends; behind
// each of them a feed-forward block or a mixture of experts.
class DeltaDecoder final : public ResidualStack {
 public:
  explicit DeltaDecoder(const DeltaDecoderConfig& config);

  std::string DescribeNumerics() const override;
  void DescribeGguf(GgufWriter* out) const override;

 private:
  DeltaDecoderConfig config_;
};

Result<std::unique_ptr<FamilyModel>> MakeDeltaDecoder(ConfigReader* reader,
                                                      const DeltaVariant& variant, DType kv);

}  // namespace reprise
