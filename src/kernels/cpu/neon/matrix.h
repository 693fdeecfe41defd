// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

// The parts of OverlayNeonMatrix.
namespace reprise::cpu::neon {

void SetQuantised(KernelTable* table);
void SetFloat(KernelTable* table);  // f32, f16, bf16
void Quantise32(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);
void Quantise256(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);

}  // namespace reprise::cpu::neon
