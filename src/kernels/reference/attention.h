// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

// Entries of KernelTable of the same names.
namespace reprise::reference {

void AttendF32(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendF16(const cpu::AttentionTile* tile, const cpu::AttentionState* state, float* scratch);
void AttendMerge(const cpu::AttentionState* state, const cpu::AttentionState* block, int queries,
                 int value_dim);

}  // namespace reprise::reference
