// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

namespace reprise::cuda {

// Channels of each of `heads` heads: y[t][h * y_step + i] = x[t][h * x_step + i], 0 <= i < width.
void CopyHeads(Stream stream, int heads, int64_t width, const View& x, int64_t x_step,
               const View& y, int64_t y_step);

}  // namespace reprise::cuda
