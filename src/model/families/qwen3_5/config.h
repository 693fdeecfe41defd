// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/status.h"
#include "model/config/decoder.h"
#include "model/config/reader.h"
#include "model/layers/attention.h"
#include "model/layers/gated_delta_net.h"

namespace reprise::qwen3_5 {

struct Config {
  DecoderConfig decoder;
  std::vector<bool> recurrent;  // per layer: GatedDeltaNet, else gated attention
  GatedDeltaNetShape delta;
  AttentionShape attention;
  int full_interval = 0;  // every so many layers one attends; 0: no such pattern
  std::vector<int64_t> rope_sections;
};

Result<Config> ReadConfig(ConfigReader* reader, DType kv);

}  // namespace reprise::qwen3_5
