// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "weights/format/stored_tensor.h"

namespace reprise {

// Weights from one stored type to another, for --weights q8_0 while loading and for converters.

// What a row of `cols` values can be stored as when `wanted` was asked for: `wanted` itself, or, if
// rows are not whole super-blocks, the type of 32-blocks that is nearest in accuracy without being
// worse, or F16 if rows are not even whole 32-blocks. (The same choice as llama.cpp's, so that
// files agree.)
DType FittingType(DType wanted, int64_t cols);

// Rows [row_begin, row_end) of `tensor` as `dtype`, to `out`, rows contiguous: RowBytes(dtype,
// cols) each. Rows are independent, so threads may take ranges of their own. Copies if the type is
// the same. Allocates nothing. REQUIRES: CanQuantise(dtype) or dtype == tensor.dtype; cols is a
// multiple of its block.
void ConvertRows(const StoredTensor& tensor, DType dtype, int64_t row_begin, int64_t row_end,
                 std::byte* out);

}  // namespace reprise
