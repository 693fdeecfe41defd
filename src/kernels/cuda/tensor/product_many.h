// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/product_half.h"

namespace reprise::cuda {

// The product for many rows on Hopper: warpgroups of tensor cores fed by the copy engine. Chosen by
// Product and ProductGroups; the bits are theirs. Rows of x must lie in the order of the slots
// (groups.row is null).
// REQUIRES: the device has compute capability 9.0; x.data and weight.data are aligned to 16 bytes.
void ManyRowsProduct(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                     const HalfGroups& groups, const float* bias, const View& out);
// How many tiles it cuts a product without groups into, each of which one multiprocessor computes.
int64_t ManyRowsTiles(int64_t rows, int64_t columns);

}  // namespace reprise::cuda
