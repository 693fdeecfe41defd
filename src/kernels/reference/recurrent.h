// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Entries of KernelTable of the same names.
namespace reprise::reference {

void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int reach, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride);
void DeltaGates(const float* a, const float* b, const float* exp_a, const float* dt_bias, int64_t n,
                float* decay, float* beta);
void GatedDelta(float* state, int64_t state_stride, int key_dim, int columns, const float* q,
                const float* k, int64_t qk_stride, const float* v, int64_t v_stride,
                const float* decay, const float* beta, int64_t gate_stride, int rows, float* y,
                int64_t y_stride, const float* ahead);

}  // namespace reprise::reference
