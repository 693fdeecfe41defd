// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/cuda/tensor/product_half.h"

namespace reprise::cuda {

// A tile of a product: so many rows of x by so many rows of the matrix. Blocks are in teams.
struct ProductForm {
  int rows;
  int columns;
  int team;
};
// All that there are, and the one that is expected to be the quickest for so many rows.
std::span<const ProductForm> ProductForms();
const ProductForm& FormOf(int64_t rows, std::span<const HalfProduct> products);

// Products of more rows than are few, on Hopper: warpgroups of tensor cores fed by the copy engine.
// Chosen by Products and ProductGroups; the bits are theirs, whatever the form: FormOf, or the one
// of ProductForms that is given. Rows of x must lie in the order of the slots (groups.row is null).
// REQUIRES: the device has compute capability 9.0; x.data and weights are aligned to 16 bytes; all
// weights have one stride; groups have one product.
void ManyRowsProducts(Stream stream, const HalfRows& x, const HalfGroups& groups,
                      std::span<const HalfProduct> products, const ProductForm* form = nullptr);

}  // namespace reprise::cuda
