// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace reprise::reference {

// Entry short_conv of KernelTable.
void ShortConv(const float* x, int64_t x_stride, int rows, const float* weight, const float* bias,
               int taps, int64_t weight_stride, int channels, bool silu, float* window,
               int64_t window_stride, float* y, int64_t y_stride);

}  // namespace reprise::reference
