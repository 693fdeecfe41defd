// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "state/spec.h"

namespace reprise {

// The models of docs/cache.md, as far as a simulation needs them.

inline StateSpec HybridSpec() {  // Qwen3.5-0.8B: 6 attention and 18 recurrent layers
  StateSpec spec;
  spec.token_cost = 0.8e9;
  spec.token_cost_per_position = 6 * 2 * 8 * 256;
  for (int i = 0; i < 6; ++i) {
    spec.layers.push_back({i, StateKind::kFullKv, 0, {{"kv", {4, 256}, DType::kF16}}});
  }
  for (int i = 6; i < 24; ++i) {
    spec.layers.push_back(
        {i,
         StateKind::kRecurrent,
         0,
         {{"delta", {16, 128, 128}, DType::kF32}, {"conv", {6144, 3}, DType::kF32}}});
  }
  return spec;
}

inline StateSpec AttentionSpec() {  // Qwen3-0.6B
  StateSpec spec;
  spec.token_cost = 0.44e9;  // what its layers multiply
  spec.token_cost_per_position = 28 * 2 * 16 * 128;
  spec.layers.push_back({0, StateKind::kFullKv, 0, {{"kv", {16 * 28, 128}, DType::kF16}}});
  return spec;
}

}  // namespace reprise
