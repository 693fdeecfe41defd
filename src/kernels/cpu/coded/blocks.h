// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

// Blocks of the types with few values (REPRISE_CODED_TYPES) as kernels keep them. In the file a
// value is looked up in a grid of up to 2,048 points: a memory access for every eight of them, and
// no vector instruction does it well. So packing replaces the index by a code for each value, its
// place in LevelsOf (tensor/factored.h), which one byte shuffle turns into the value; from there on
// these types are k-quants. It costs memory (bits per weight):
//
//             IQ1_S  IQ1_M  IQ2_XXS  IQ2_XS  IQ2_S  IQ3_XXS  IQ3_S  TQ1_0  TQ2_0
//   in file   1.56   1.75   2.06     2.31    2.56   3.06     3.44   1.69   2.06
//   here      2.19   2.56   3.19     3.31    3.31   4.19     4.19   2.06   2.06
//
// Codes have their bits where k-quants have them (tensor/blocks.h): the two low ones as Q2_K, the
// third as Q3_K; codes of four bits as IQ4_XS. IQ1 has its third bit, the sign of delta, with the
// scales, because it is one for 32 or 8 values. A scale is (scale - 1) / 2 of FactoredBlock; nibble
// s is that of sub-block s.
namespace reprise::cpu {

#pragma pack(push, 1)

struct CodedIQ1_S {
  uint16_t d;
  uint8_t scales[4];  // of 32: bit 3 is the code's third
  uint8_t qs[64];
};
struct CodedIQ1_M {
  uint16_t d;
  uint8_t scales[16];  // of 16: bits 3 and 4 are the code's third for the first and last eight
  uint8_t qs[64];
};
struct CodedIQ2_XXS {
  uint16_t d;
  uint8_t scales[4];  // of 32
  uint8_t high[32];
  uint8_t qs[64];
};
struct CodedIQ2_XS {
  uint16_t d;
  uint8_t scales[8];  // of 16
  uint8_t high[32];
  uint8_t qs[64];
};
using CodedIQ2_S = CodedIQ2_XS;
struct CodedIQ3_XXS {
  uint16_t d;
  uint8_t scales[4];  // of 32
  uint8_t qs[128];
};
using CodedIQ3_S = CodedIQ3_XXS;
struct CodedTQ1_0 {
  uint16_t d;
  uint8_t qs[64];
};
using CodedTQ2_0 = CodedTQ1_0;

#pragma pack(pop)

// From the file's block, and to the type's values: exactly its dequantisation.
#define REPRISE_CODED(name)                                             \
  void EncodeBlock(const void* block, Coded##name* coded, DType dtype); \
  void DecodeBlock(const Coded##name& coded, float* out, DType dtype);
REPRISE_CODED(IQ1_S)
REPRISE_CODED(IQ1_M)
REPRISE_CODED(IQ2_XXS)
REPRISE_CODED(IQ2_XS)
REPRISE_CODED(IQ3_XXS)
REPRISE_CODED(TQ1_0)
#undef REPRISE_CODED

// The same bytes in the order in which kernels of groups of 32 rows (interleave.h) turn codes into
// values soonest: every instruction there counts. And back.
//
// IQ2: `high` and `qs` are three planes of 32 bytes. A byte holds codes of three bits of runs 2p
// (low half) and 2p + 1 (high half), p its plane; the fourth bit of each half, bit p of it, is bit
// p of the codes of runs 6 and 7. A run is 32 values, its value j in byte j of each plane: of
// IQ2_XXS sub-block r; of the others sub-blocks r and r + 8. IQ1_M: a byte of `scales` has 2 *
// scale + 1 from bit 4 on, and the thirds of its codes, the first eight's and the last eight's, in
// bits 0 and 1, and again in bits 2 and 3.
void Entwine(CodedIQ2_XXS* coded);
void Entwine(CodedIQ2_XS* coded);
void Entwine(CodedIQ1_M* coded);
void Disentwine(CodedIQ2_XXS* coded);
void Disentwine(CodedIQ2_XS* coded);
void Disentwine(CodedIQ1_M* coded);

}  // namespace reprise::cpu
