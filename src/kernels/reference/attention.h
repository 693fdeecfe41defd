// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/table.h"
#include "tensor/half.h"

// Entries of KernelTable of the same names.
namespace reprise::reference {

void AttendF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendQ8(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendMerge(const cpu::AttentionState* state, const cpu::AttentionState* block, int queries,
                 int value_dim);
void WeighKeysF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float* scratch);
void WeighKeysF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float* scratch);
void WeighKeysBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                   float* scratch);
void WeighKeysQ8(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                 float* scratch);
void StoreKeysF32(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, float* k);
void StoreKeysF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                  uint16_t* k);
void StoreKeysBF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                   uint16_t* k);
void StoreKeysQ8(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, void* k);
void StoreValuesQ8(const float* x, int64_t x_stride, int tokens, int value_dim, int slot, void* v);

// K/V of type q8_0: what codes and scales are, and what they mean (kernels/cpu/table.h).
inline constexpr uint16_t kNoScale = 0x7E00;  // NaN

inline uint16_t ScaleOfQ8(const float* x, int n) {
  uint32_t most = 0;  // NaN is larger than infinity is larger than any number
  for (int i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF;
    most = bits > most ? bits : most;
  }
  const uint16_t scale = reprise::F32ToF16(std::bit_cast<float>(most) / 127.0f);
  return scale < 0x7C00 ? scale : kNoScale;
}

inline int8_t CodeOfQ8(uint16_t scale, float x) {
  if (scale == 0 || scale == kNoScale) return 0;
  const float q = x * (1.0f / reprise::F16ToF32(scale));
  const float within = q < -127.0f ? -127.0f : q > 127.0f ? 127.0f : q;
  return static_cast<int8_t>(std::nearbyint(within));  // half to even
}

inline float ElementOfQ8(uint16_t scale, int8_t code) {
  return reprise::F16ToF32(reprise::F32ToF16(reprise::F16ToF32(scale) * static_cast<float>(code)));
}

}  // namespace reprise::reference
