// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/joined/riders.h"
#include "kernels/cuda/tensor/product_half.h"

// Activations for products with 16-bit weights: rows as reference::RoundRow makes them.
namespace reprise::cuda {

void RoundRows(Stream stream, const View& x, const HalfRows& out);

// Makes rows, and rounds them on the way; what they are made of and they themselves are written as
// by the ops. REQUIRES: MayMakeAndRound(rows).
bool MayMakeAndRound(const MadeRows& rows);
void MakeAndRoundRows(Stream stream, const MadeRows& rows, const HalfRows& out);

}  // namespace reprise::cuda
