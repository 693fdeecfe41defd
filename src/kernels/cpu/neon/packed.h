// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/table.h"
#include "tensor/dtype_list.h"

// The pack format of quantised matrices on aarch64, "arm8": groups of eight rows, block by block,
// in the bytes of the file's blocks (of coded types: those of kernels/cpu/coded/blocks.h),
// rearranged so that no instruction set has to shuffle weights:
//
//   a weight register W[step][pair] is  | row 2 pair: values 8 step .. + 7 | row 2 pair + 1: same |
//
// which is the operand of smmla (2 rows x 8 values), feeds sdot with the activations' eight values
// repeated, and gives smull one row in each half. Types of fewer bits keep their bits together as
// in the file; byte i of a register then holds those of value i % 8 of several steps or sub-blocks.
// Small tables (scales) are transposed: [index][row], so that a vector holds one index of all rows.
//
// Bytes per group equal those of these blocks but for padding at the end.
namespace reprise::cpu::neon {

inline constexpr int kGroupRows = 8;
using Register = uint8_t[16];
using StepRegisters = Register[4];        // by pair
using BlockRegisters = StepRegisters[4];  // by step: 32 values of each row

struct alignas(16) PackedQ8_0 {
  uint16_t d[8];
  int8_t q[4][4][16];
};

// Low nibbles of q[step] belong to `step`, high nibbles to step + 2. Q4_0 holds q - 8 as a
// two's-complement nibble, the others the bits of the file.
struct alignas(16) PackedQ4_0 {
  uint16_t d[8];
  StepRegisters q[2];
};
using PackedIQ4_NL = PackedQ4_0;
struct alignas(8) PackedMXFP4 {
  uint8_t e[8];
  StepRegisters q[2];
};
struct alignas(16) PackedQ4_1 {
  uint16_t d[8];
  uint16_t m[8];
  StepRegisters q[2];
};

// Bit 4 (pair % 2) + step of byte i of high[pair / 2]: the fifth bit of byte i of W[step][pair].
// Q5_0 holds its complement, the sign of q - 16.
struct alignas(16) PackedQ5_0 {
  uint16_t d[8];
  Register high[2];
  StepRegisters q[2];
};
struct alignas(16) PackedQ5_1 {
  uint16_t d[8];
  uint16_t m[8];
  Register high[2];
  StepRegisters q[2];
};

// Super-blocks. "Run" r is the values 32 r .. 32 r + 31.
struct alignas(16) PackedQ2_K {
  uint16_t d[8];
  uint16_t dmin[8];
  uint8_t scales[16][8];  // by sub-block of 16: scale | min << 4
  BlockRegisters q[2];    // run r in bits 2 (r % 4) of q[r / 4]
};
struct alignas(16) PackedQ3_K {
  uint16_t d[8];
  uint8_t scales[12][8];  // the file's bytes
  BlockRegisters high;    // third bit of run r: bit r
  BlockRegisters q[2];    // as in Q2_K
};
struct alignas(16) PackedQ4_K {
  uint16_t d[8];
  uint16_t dmin[8];
  uint8_t scales[12][8];  // the file's bytes
  BlockRegisters q[4];    // run 2 i in the low nibbles of q[i], run 2 i + 1 in the high ones
};
struct alignas(16) PackedQ5_K {
  uint16_t d[8];
  uint16_t dmin[8];
  uint8_t scales[12][8];
  BlockRegisters high;  // fifth bit of run r: bit r
  BlockRegisters q[4];  // as in Q4_K
};
struct alignas(16) PackedQ6_K {
  uint16_t d[8];
  int8_t scales[16][8];      // by sub-block of 16
  BlockRegisters low[2][2];  // run 4 h + k: low[h][k % 2], low nibbles where k < 2, else high
  BlockRegisters high[2];    // two high bits of run 4 h + k: bits 2k of high[h], as those of q - 32
};
struct alignas(16) PackedIQ4_XS {
  uint16_t d[8];
  uint8_t scales[6][8];   // the file's bytes: scales_h, then scales_l
  StepRegisters q[8][2];  // by run, nibbles as in Q4_0
};
// The coded types (kernels/cpu/coded/blocks.h): codes as in Q2_K, Q3_K and IQ4_XS.
struct alignas(16) PackedIQ1_S {
  uint16_t d[8];
  uint8_t scales[4][8];
  BlockRegisters q[2];
};
struct alignas(16) PackedIQ1_M {
  uint16_t d[8];
  uint8_t scales[16][8];
  BlockRegisters q[2];
};
struct alignas(16) PackedIQ2_XXS {
  uint16_t d[8];
  uint8_t scales[4][8];
  BlockRegisters high;
  BlockRegisters q[2];
};
struct alignas(16) PackedIQ2_XS {
  uint16_t d[8];
  uint8_t scales[8][8];
  BlockRegisters high;
  BlockRegisters q[2];
};
using PackedIQ2_S = PackedIQ2_XS;
struct alignas(16) PackedIQ3_XXS {
  uint16_t d[8];
  uint8_t scales[4][8];
  StepRegisters q[8][2];
};
using PackedIQ3_S = PackedIQ3_XXS;
struct alignas(16) PackedTQ1_0 {
  uint16_t d[8];
  BlockRegisters q[2];
};
using PackedTQ2_0 = PackedTQ1_0;

enum class PackedType : int {
#define REPRISE_PACKED(name, ...) k##name,
  REPRISE_QUANTISED_TYPES(REPRISE_PACKED)
#undef REPRISE_PACKED
};

using RunFunction = void(const void* group, int rows, int64_t cols, const float* x,
                         int64_t x_stride, const QuantisedRows* quantised, int tokens, float* y,
                         int64_t y_stride);

// Puts `run`, with this format's packing, into the table's entry for the type.
void SetMatrix(KernelTable* table, PackedType type, const char* isa, RunFunction* run);

}  // namespace reprise::cpu::neon
