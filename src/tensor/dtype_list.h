// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one list of element types. A line is
//
//   X(Name, name on the command line, values of a block, bytes of a block, ggml_type)
//
// and everything that has an entry per type is made from it: DType and its traits, readers and
// writers of rows, the reference and the entries of every instruction set. So a new type is a line
// here, and what only its author can say, which the compiler then misses by name: Block<Name> in
// tensor/blocks.h and its Decode; Encode, unless it is among those that nothing here writes; Expand
// in kernels/reference; a layout and a reader Weights<Name> in kernels/cpu.
//
// Lists are by what the code does with a type, not by its name:
//
//   PLAIN      one value is one block
//   SMALL      32 values, activations in blocks of 32
//   SUPER      256 values, packed by a permutation of the file's bytes
//   CODED      256 values, packed as codes of a few bits (kernels/cpu/coded/blocks.h): values that
//              are points of a grid (IQ1, IQ2, IQ3) or ternary (TQ)
//
// GRID is the part of CODED that needs importance data to be written, so nothing here writes it.
#define REPRISE_PLAIN_TYPES(X) \
  X(F32, "f32", 1, 4, 0)       \
  X(F16, "f16", 1, 2, 1)       \
  X(BF16, "bf16", 1, 2, 30)

#define REPRISE_SMALL_TYPES(X)    \
  X(Q8_0, "q8_0", 32, 34, 8)      \
  X(Q4_0, "q4_0", 32, 18, 2)      \
  X(Q4_1, "q4_1", 32, 20, 3)      \
  X(Q5_0, "q5_0", 32, 22, 6)      \
  X(Q5_1, "q5_1", 32, 24, 7)      \
  X(IQ4_NL, "iq4_nl", 32, 18, 20) \
  X(MXFP4, "mxfp4", 32, 17, 39)

#define REPRISE_SUPER_TYPES(X)  \
  X(Q2_K, "q2_k", 256, 84, 10)  \
  X(Q3_K, "q3_k", 256, 110, 11) \
  X(Q4_K, "q4_k", 256, 144, 12) \
  X(Q5_K, "q5_k", 256, 176, 13) \
  X(Q6_K, "q6_k", 256, 210, 14) \
  X(IQ4_XS, "iq4_xs", 256, 136, 23)

#define REPRISE_GRID_TYPES(X)        \
  X(IQ1_S, "iq1_s", 256, 50, 19)     \
  X(IQ1_M, "iq1_m", 256, 56, 29)     \
  X(IQ2_XXS, "iq2_xxs", 256, 66, 16) \
  X(IQ2_XS, "iq2_xs", 256, 74, 17)   \
  X(IQ2_S, "iq2_s", 256, 82, 22)     \
  X(IQ3_XXS, "iq3_xxs", 256, 98, 18) \
  X(IQ3_S, "iq3_s", 256, 110, 21)

#define REPRISE_TERNARY_TYPES(X) \
  X(TQ1_0, "tq1_0", 256, 54, 34) \
  X(TQ2_0, "tq2_0", 256, 66, 35)

#define REPRISE_CODED_TYPES(X) \
  REPRISE_GRID_TYPES(X)        \
  REPRISE_TERNARY_TYPES(X)

#define REPRISE_QUANTISED_TYPES(X) \
  REPRISE_SMALL_TYPES(X)           \
  REPRISE_SUPER_TYPES(X)           \
  REPRISE_CODED_TYPES(X)

// What matrices may be of.
#define REPRISE_WEIGHT_TYPES(X) \
  REPRISE_PLAIN_TYPES(X)        \
  REPRISE_QUANTISED_TYPES(X)
