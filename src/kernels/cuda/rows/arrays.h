// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kernels/cuda/view.h"

namespace reprise::cuda {

// Brings `bytes` from memory of the host that the GPU reaches (Pinned). Few are read by a kernel: a
// decoded token waits for them, and the copy engine takes longer to begin.
// REQUIRES: all are multiples of 16.
void BringArrays(Stream stream, const std::byte* from, size_t bytes, std::byte* to);

}  // namespace reprise::cuda
