// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/tensor/product_half.h"

namespace reprise::cuda {

// Products of more rows than are few and too few to fill the device with tiles of their own: slices
// of K are divided among the blocks of a cluster. The bits are those of every other form.
// REQUIRES: the device has compute capability 9.0; x.data and weights are aligned to 16 bytes; all
// weights have one stride.
void SomeRowsProducts(Stream stream, const HalfRows& x, std::span<const HalfProduct> products);

// Whether these products are of that kind.
bool AreSomeRows(const HalfRows& x, std::span<const HalfProduct> products);

}  // namespace reprise::cuda
