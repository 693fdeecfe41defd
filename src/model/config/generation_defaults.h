// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf_writer.h"

namespace reprise {

// How the makers of a model want its replies sampled; what they do not say is absent.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

// From generation_config.json beside the weights (do_sample false: temperature 0), or from the keys
// general.sampling.* that llama.cpp reads, too. Fails with kDataLoss if a value is out of range.
Result<GenerationDefaults> ReadGenerationDefaults(const Checkpoint& checkpoint);

// Writes them under those keys.
void PutGenerationDefaults(const GenerationDefaults& defaults, GgufWriter* out);

}  // namespace reprise
