// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

// Entries of KernelTable of the same names.
namespace reprise::reference {

void AttendF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendMerge(const cpu::AttentionState* state, const cpu::AttentionState* block, int queries,
                 int value_dim);
void WeighKeysF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float* scratch);
void WeighKeysF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                  float* scratch);
void WeighKeysBF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* weights,
                   float* scratch);
void StoreKeysF32(const float* x, int64_t x_stride, int tokens, int head_dim, int slot, float* k);
void StoreKeysF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                  uint16_t* k);
void StoreKeysBF16(const float* x, int64_t x_stride, int tokens, int head_dim, int slot,
                   uint16_t* k);

}  // namespace reprise::reference
