// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace reprise {

// The bits of quantised blocks, as GGUF files store them: little-endian, byte-packed, in the order
// of the fields below. `d` and the like are f16 bit patterns (tensor/half.h). The structs have
// alignment 1, so a pointer to them may come from anywhere in a file. What the bits mean is written
// beside each; the code that says the same is tensor/dequantise.cc.
//
// Small blocks hold 32 values, `e` in [0, 32). Nibbles are split, not interleaved:
//
//   qs[16]:  byte j holds value j (low nibble) and value j + 16 (high nibble)
//
// Super-blocks hold 256 values in sub-blocks of 16 or 32 with scales of their own, which are
// quantised in turn against `d` (and minima against `dmin`).
#pragma pack(push, 1)

// x = d * q, q in [-127, 127] (-128 may occur in files).
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};

// x = d * (q - 8).
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};

// x = d * q + m.
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};

// x = d * (q - 16). Bit e of the little-endian word qh is bit 4 of value e.
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

// x = d * q + m; bits as in Q5_0.
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};

// 16 sub-blocks s of 16: x = d * (scales[s] & 15) * q - dmin * (scales[s] >> 4).
//
//   qs, in two halves of 128 values:  byte 32 h + l holds the values 128 h + 32 k + l, k = 0..3,
//                                     in bits 2k and 2k + 1
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};

// 16 sub-blocks s of 16: x = d * (scale(s) - 32) * (q - 4), q of 3 bits.
//
//   qs     the two low bits, placed as in Q2_K
//   hmask  the third bit of value 32 k + l is bit k of hmask[l], k = 0..7
//   scales 6 bits each:  byte    7 6 5 4 3 2 1 0
//          j = 0..7      j       [ s = j+8 ][ s = j ]       the four low bits
//          j = 0..3      8 + j   [j+12][j+8][j+4][j ]       the two high bits
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

// 8 sub-blocks s of 32: x = d * scale(s) * q - dmin * min(s), q of 4 bits.
//
//   qs, in four quarters of 64 values:  byte 32 p + l holds value 64 p + l (low nibble) and
//                                       value 64 p + 32 + l (high nibble)
//   scales, minima: 6 bits each, S = scale, M = min of sub-block:
//          byte    7 6   5 4 3 2 1 0
//          0 + j   S4+j  [  S j    ]      j = 0..3; the two high bits of scale 4 + j on top
//          4 + j   M4+j  [  M j    ]
//          8 + j   [M 4+j low][S 4+j low]  the four low bits of each
struct BlockQ4_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// As Q4_K with a fifth bit: that of sub-block s, place l, is bit s of qh[l].
struct BlockQ5_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// 16 sub-blocks s of 16: x = d * scales[s] * (q - 32), q of 6 bits.
//
// Value e = 128 h + 32 k + l (h = 0..1, k = 0..3, l = 0..31):
//   ql[64 h + 32 (k & 1) + l]  low nibble if k < 2, else high: the four low bits
//   qh[32 h + l]               bits 2k and 2k + 1: the two high bits
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

// x = d * kIQ4Values[q].
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};

// 8 sub-blocks s of 32: x = d * (scale(s) - 32) * kIQ4Values[q]. Each sub-block has its own 16
// bytes of nibbles, split as in the small blocks. Scale: four low bits in nibble s of scales_l,
// two high bits in bits 2s and 2s + 1 of scales_h.
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// 8 sub-blocks of 32, each of 8 bytes: four grid indices of 8 bits, then a little-endian word of
// four sign patterns of 7 bits (bits 0..27) and a scale of 4 bits (28..31):
//
//   x = d * (0.5 + scale) * 0.25 * magnitude(kIQ2Grid[index], i) * sign
//
// An index stands for eight magnitudes, two bits each; the eighth sign is the one that makes the
// number of negative signs even.
struct BlockIQ2_XXS {
  uint16_t d;
  uint8_t qs[64];
};

// x = d * kMXFP4Values[q] with d = 2^(e - 128): the OCP format with its levels doubled and its
// scale halved, so that levels are integers. Every value of e is a scale, 255 too.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136 && sizeof(BlockIQ2_XXS) == 66);
static_assert(sizeof(BlockMXFP4) == 17);

// The sixteen levels of the IQ4 types: denser near zero, as weights are.
inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// The sixteen levels of MXFP4: twice those of a float of 4 bits (E2M1).
inline constexpr int8_t kMXFP4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// The scale of an MXFP4 block; the two least are subnormal.
inline float MXFP4Scale(uint8_t e) {
  const uint32_t bits = e < 2 ? uint32_t{0x00200000} << e : uint32_t(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

// The 256 points of the IQ2_XXS grid. Two bits of point p select a magnitude, value i in bits 2i
// and 2i + 1: kIQ2Magnitudes[p >> 2i & 3]; the code 3 does not occur. (iq2_grid.gen.cc)
extern const uint16_t kIQ2Grid[256];
inline constexpr uint8_t kIQ2Magnitudes[4] = {0x08, 0x19, 0x2b, 0};

}  // namespace reprise
