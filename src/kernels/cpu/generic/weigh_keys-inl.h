// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/generic/attention-inl.h"

// What the keys of one block weigh with queries whose softmax is known: weigh_keys_* of
// KernelTable.
namespace reprise::cpu {
namespace {

template <typename Key>
void WeighElements(const AttentionTile& tile, const Key* k, const AttentionState& state,
                   float* weights, float* scores) {
  ScoreElements(tile, k, scores, AskNothing());
  for (int i = 0; i < tile.queries; ++i) {
    const int first = tile.first[i];
    const int visible = tile.visible[i];
    const V16 maximum = Set(state.max[i]);
    const V16 share = Set(1.0f / state.sum[i]);
    for (int j = first & ~15; j < visible; j += 16) {
      V16 score = Load(scores + i * kKeys + j);
      if (tile.softcap != 0) {
        score = Mul(Set(tile.softcap), Tanh(Div(score, Set(tile.softcap))));
      }
      const V16 before = Load(weights + j);
      const V16 after = Add(before, Mul(ExpBounded(Sub(score, maximum)), share));
      const auto seen = Lanes(first > j ? first - j : 0, visible - j < 16 ? visible - j : 16);
      Store(weights + j, Select(seen, after, before));
    }
  }
}

void WeighKeysF32(const AttentionTile* tile, const AttentionState* state, float* weights,
                  float* scratch) {
  WeighElements(*tile, static_cast<const float*>(tile->k), *state, weights, scratch);
}

void WeighKeysF16(const AttentionTile* tile, const AttentionState* state, float* weights,
                  float* scratch) {
  const int64_t count = int64_t{kKeys} * tile->head_dim;
  F16ToF32(static_cast<const uint16_t*>(tile->k), count, scratch);
  WeighElements(*tile, scratch, *state, weights, scratch + count);
}

void WeighKeysBF16(const AttentionTile* tile, const AttentionState* state, float* weights,
                   float* scratch) {
  const int64_t count = int64_t{kKeys} * tile->head_dim;
  BF16ToF32(static_cast<const uint16_t*>(tile->k), count, scratch);
  WeighElements(*tile, scratch, *state, weights, scratch + count);
}

void WeighKeysQ8(const AttentionTile* tile, const AttentionState* state, float* weights,
                 float* scratch) {
  WidenKeysQ8(tile->k, tile->head_dim, 0, kKeys, scratch);
  WeighElements(*tile, scratch, *state, weights, scratch + int64_t{kKeys} * tile->head_dim);
}

void OverlayWeighing(KernelTable* table) {
  table->weigh_keys_f32 = WeighKeysF32;
  table->weigh_keys_f16 = WeighKeysF16;
  table->weigh_keys_bf16 = WeighKeysBF16;
  table->weigh_keys_q8_0 = WeighKeysQ8;
}

}  // namespace
}  // namespace reprise::cpu
