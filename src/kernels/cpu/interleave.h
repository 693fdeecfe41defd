// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/table.h"
#include "tensor/dtype.h"

// Pack formats shared by instruction sets that multiply several rows at a time. Packing is a
// permutation of the file's bytes, or for REPRISE_CODED_TYPES of those of
// kernels/cpu/coded/blocks.h (entwined, as it says there): a row can be taken out again exactly,
// and only the latter grow.
namespace reprise::cpu {

// Quantised types, "interleaved32": groups of 32 rows. Blocks of a group follow each other along k;
// a block holds the same block of the 32 rows, field after field, each field cut into units of 1, 2
// or 4 bytes, and unit u of all rows side by side:
//
//   field[units][32 rows][unit bytes]
//
// so that 4 bytes of each of 16 rows are one 64-byte vector, which meets 4 activations in one
// integer dot instruction. Fields by type, as (name: units x unit bytes), in this order:
//
//   Q8_0    d: 1x2, qs: 8x4                    Q2_K    d: 1x2, dmin: 1x2, scales: 16x1, qs: 16x4
//   Q4_0    d: 1x2, qs: 4x4                    Q3_K    d: 1x2, scales: 12x1, hmask: 8x4, qs: 16x4
//   Q4_1    d: 1x2, m: 1x2, qs: 4x4            Q4_K    d: 1x2, dmin: 1x2, scales: 12x1, qs: 32x4
//   Q5_0    d: 1x2, qh: 1x4, qs: 4x4           Q5_K    as Q4_K with qh: 8x4 before qs
//   Q5_1    d: 1x2, m: 1x2, qh: 1x4, qs: 4x4   Q6_K    d: 1x2, scales: 16x1, ql: 32x4, qh: 16x4
//   IQ4_NL  as Q4_0                            IQ4_XS  d: 1x2, scales_h: 1x2, scales_l: 4x1, qs:
//   32x4
//   MXFP4   e: 1x1, qs: 4x4
//
// and the coded ones
//
//   IQ1_S   d: 1x2, scales: 4x1, qs: 16x4      IQ2_XXS d: 1x2, scales: 4x1, high: 8x4, qs: 16x4
//   IQ1_M   d: 1x2, scales: 16x1, qs: 16x4     IQ2_XS  d: 1x2, scales: 8x1, high: 8x4, qs: 16x4
//   TQ1_0   d: 1x2, qs: 16x4                   IQ2_S   as IQ2_XS
//   TQ2_0   as TQ1_0                           IQ3_XXS d: 1x2, scales: 4x1, qs: 32x4
//                                              IQ3_S   as IQ3_XXS
//
// The word qh of Q5_0 and Q5_1 is stored with bit 4i + j moved to bit 8j + i: the fifth bits of the
// values 4i..4i+3 are then bit i of the word's four bytes.
inline constexpr int kInterleavedRows = 32;

// Types of floats, "quads16": groups of 16 rows as four quads; a quad holds 64 bytes of each of its
// 4 rows in turn, padded with zeros at the end of the rows:
//
//   [4 quads][row bytes / 64][4 rows][64]
inline constexpr int kQuadRows = 4;
inline constexpr int kQuadGroupRows = 16;

// Sets format, activations, group_rows, group_bytes, pack and unpack_row to those of the type's
// format above. REQUIRES: dtype != kI32.
void UseInterleaved(DType dtype, MatrixKernel* kernel);

}  // namespace reprise::cpu
