// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cli/model_outline.h"

namespace reprise::cli {

// Whether a model fits into some memory, and what it can do there.
struct Fit {
  bool weights = false;  // they fit
  int64_t context = 0;   // tokens of the longest request that fits; 0: none does
  int64_t requests = 0;  // of `request_tokens` each, at the same time or remembered
  int64_t request_tokens = 0;
  uint64_t bytes_per_token = 0;     // of K/V, while no layer has left its window
  uint64_t bytes_per_sequence = 0;  // of recurrent state
  // Tokens per second of one reply, at most: each reads the weights it goes through, and its state.
  // 0: the bandwidth is not known.
  double tokens_per_second = 0;
};

// `memory_bytes`: what is free before the model is loaded. `gigabytes_per_second`: measured.
Fit FindFit(const ModelOutline& model, uint64_t memory_bytes, double gigabytes_per_second);

}  // namespace reprise::cli
