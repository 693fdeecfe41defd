// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace reprise {

// Rows of weights to and from f32: the plain, portable definition of every stored type. Kernels do
// not come through here (they read blocks); loading, converting, synthesis and tests do.
//
// DequantiseRow gives the bits of the formulas in tensor/blocks.h, each product and sum rounded in
// the order written there; llama.cpp gives the same. QuantiseRow is a function of the input alone,
// the same on every CPU; for the small blocks (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, MXFP4)
// and the ternary types it equals llama.cpp's bits, for the others it searches scales of its own
// (quantise_k.cc).
//
// A block with a value that is not finite, or too large for an f16 scale, decodes to NaN or
// infinity throughout: it is not lost but reaches the logits, where the engine refuses it.
//
// Costs per value: Q8_0 and the like a few cycles, the k-quants and IQ4 types some hundred.

// REQUIRES: dtype is not kI32; n >= 0 and a multiple of the block; `out` has room for n.
void DequantiseRow(DType dtype, const void* blocks, float* out, int64_t n);

// False for kI32 and for REPRISE_GRID_TYPES (IQ1, IQ2, IQ3), whose files need importance data that
// weights alone do not have.
bool CanQuantise(DType dtype);

// REQUIRES: CanQuantise(dtype); n >= 0 and a multiple of the block; `blocks` has RowBytes(dtype,
// n).
void QuantiseRow(DType dtype, const float* in, void* blocks, int64_t n);

}  // namespace reprise
