// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/joined/riders.h"
#include "kernels/cuda/tensor/product_half.h"

// Activations for products with 16-bit weights: rows as reference::RoundRow makes them.
namespace reprise::cuda {

void RoundRows(Stream stream, const View& x, const HalfRows& out);
// Row r of x goes to rows slot[r * each] ... of `out`, which has as many as that is: the slots of a
// plan of experts.
struct RowSlots {
  const int32_t* slot = nullptr;
  int each = 1;
};
void RoundRowsToSlots(Stream stream, const View& x, const RowSlots& slots, const HalfRows& out);

// Makes rows, and rounds them on the way; what they are made of and they themselves are written as
// by the ops. REQUIRES: MayMakeAndRound(rows).
bool MayMakeAndRound(const MadeRows& rows);
void MakeAndRoundRows(Stream stream, const MadeRows& rows, const HalfRows& out);

}  // namespace reprise::cuda
