// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/cuda/tensor/product_half.h"

namespace reprise::cuda {

// Products of more rows than are few, on Hopper: warpgroups of tensor cores fed by the copy engine.
// Chosen by Products and ProductGroups; the bits are theirs, whatever the form: the quickest, or
// the one of kProductForms (forms.h) that is given. Rows of x must lie in the order of the slots
// (groups.row is null).
// REQUIRES: the device has compute capability 9.0; x.data and weights are aligned to 16 bytes; all
// weights have one stride; groups have one product, and no form but the first.
void ManyRowsProducts(Stream stream, const HalfRows& x, const HalfGroups& groups,
                      std::span<const HalfProduct> products, std::optional<size_t> form = {});

}  // namespace reprise::cuda
