// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/joined/riders.h"
#include "kernels/cuda/product_float.h"

namespace reprise::cuda {

// h = rms_norm(x) of one row, and its products with F32 weights: the router of experts. Bits are
// those of RmsNorm and of product_float.h. False, and nothing is done: these are too many or too
// odd for one kernel.
// REQUIRES: h and the norm's weights are aligned to 16 bytes; nothing that is written is read.
bool RunNormedFloats(Stream stream, const View& x, const InputNorm& norm,
                     std::span<const FloatProduct> products);

}  // namespace reprise::cuda
