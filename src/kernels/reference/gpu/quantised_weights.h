// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

// Quantised weights as products on tensor cores take them: in f16. A weight is an integer with a
// scale and a shift in f16, and becomes rn(scale * q + shift): exact, then rounded once, to nearest
// even. The product is that of F16 with these weights (tensor_core.h). Where a file has no such
// scale and shift they are rounded to f16 first:
//
//   type     q             scale         shift
//   Q8_0     -128 .. 127   d             0
//   Q4_0     0 .. 15       d             rn(-8 d)
//   Q4_1     0 .. 15       d             m
//   Q5_0     0 .. 31       d             rn(-16 d)
//   Q5_1     0 .. 31       d             m
//   Q4_K     0 .. 15       rn(d * s)     rn(-dmin * m)      s, m: of 32 weights, 6 bits
//   Q5_K     0 .. 31       the same
//   Q6_K     -32 .. 31     rn(d * s)     0                  s: of 16 weights, int8
//   IQ1_S    -9 .. 9       rn(d * s)     0                  s: of 16 weights, an eighth of an odd
//   IQ1_M    the same                                       number
//   IQ3_XXS  -31 .. 31     rn(d * s)     0                  values of the grid, and half of those
//   IQ3_S    -15 .. 15     the same                         of IQ3_XXS (tensor/factored.h)
//   TQ1_0    0 .. 3        d             -d
//   TQ2_0    0 .. 3        d             -d
//
// What rounding takes of a weight is at most 2^-11 of it, and 2^-11 of its scale's and shift's
// parts: of the order of what rounding takes of an activation.
namespace reprise::reference {

inline constexpr int kScaledWeights = 16;  // weights with one scale and shift: at least so many

// Whether products with this type are specified this way; others have the CPU's integers.
bool HasHalfWeights(DType dtype);

// A row of blocks taken apart: q [cols], scale and shift [cols / 16]. REQUIRES: HasHalfWeights.
struct ScaledRow {
  int8_t* q;
  uint16_t* scale;
  uint16_t* shift;
};
void TakeApart(DType dtype, const void* blocks, int64_t cols, const ScaledRow& row);

// rn(scale * q + shift).
uint16_t HalfWeight(int q, uint16_t scale, uint16_t shift);

// All of that for a row: its weights in f16.
void HalfWeights(DType dtype, const void* blocks, std::span<uint16_t> weights);

}  // namespace reprise::reference
