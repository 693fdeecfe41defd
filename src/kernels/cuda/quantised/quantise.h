// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

namespace reprise::cuda {

// Activations in blocks of 32 or of 256, with the bits of the CPU (QuantisedRows of
// kernels/cpu/table.h): x.q, x.scale and x.sum of every row. REQUIRES: cols is a multiple of the
// block; to.q is aligned to 32 bytes.
void Quantise32(Stream stream, const View& x, const QuantisedView& to);
void Quantise256(Stream stream, const View& x, const QuantisedView& to);

}  // namespace reprise::cuda
