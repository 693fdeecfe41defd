// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "kernels/cuda/packed/product_packed.h"

namespace reprise::cuda {

// Rows [begin[e], begin[e + 1]) of x and of the outputs have matrix e of a stack.
struct ExpertRows {
  const int32_t* begin = nullptr;  // [count + 1], on the device
  int count = 0;
};

// As RunPackedMany, with matrices of stacks, which lie one behind another. Rows of x lie in the
// order of the slots (RoundRowsToSlots, tensor/round.h).
// REQUIRES: one number of columns of all weights; no bias. tiling: 8, 16 or 32 rows of x by 64 of
// the matrix, or 64 or 128 by 128; of one block.
void RunPackedExperts(Stream stream, const HalfRows& x, const ExpertRows& experts,
                      std::span<const HalfProduct> products,
                      std::optional<PackedTiling> tiling = std::nullopt);

}  // namespace reprise::cuda
