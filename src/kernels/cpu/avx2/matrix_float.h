// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/table.h"

namespace reprise::cpu {

// Pieces of OverlayAvx2Matrix.
void OverlayAvx2FloatMatrices(KernelTable* table);
void Quantise32Avx2(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);
void Quantise256Avx2(const float* x, int64_t cols, int8_t* q, float* scale, int16_t* sum);

}  // namespace reprise::cpu
