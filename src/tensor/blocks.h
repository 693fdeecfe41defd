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

// The following four are like IQ2_XXS: a sub-block s has a scale of 4 bits, a group of values an
// index into a grid and a sign for each value, `signs` by value with bit 1 meaning negative.
//
// 16 sub-blocks of 16: x = d * (0.5 + scale) * 0.25 * magnitude(kIQ2XSGrid[index], i) * sign. Word
// g of qs is for values 8 g ..: the index in bits 0..8, seven signs in bits 9..15, the eighth as in
// IQ2_XXS. The scale of sub-block s is nibble s of `scales`.
struct BlockIQ2_XS {
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};

// As IQ2_XS with ten bits of index for kIQ2SGrid, eight in qs[g], two in bits 2 (g % 4) of
// qh[g / 4]; signs[g] has all eight signs.
struct BlockIQ2_S {
  uint16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};

// 8 sub-blocks of 32: x = d * (0.5 + scale) * 0.5 * magnitude(kIQ3XXSGrid[qs[g]], i) * sign, where
// group g is four values; word s of `words` has signs and scale as in IQ2_XXS.
struct BlockIQ3_XXS {
  uint16_t d;
  uint8_t qs[64];
  uint8_t words[32];
};

// 8 sub-blocks of 32: x = d * (1 + 2 * scale) * magnitude(kIQ3SGrid[index], i) * sign: the ninth
// bit of the index of group g is bit g % 8 of qh[g / 8], the sign of value e bit e % 8 of signs[e /
// 8], the scale of sub-block s nibble s of `scales`.
struct BlockIQ3_S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

// 8 sub-blocks s of 32: x = d * (2 * scale + 1) * (step + delta), step = -1, 0, 1 from kIQ1Grid,
// delta = 1/8 or, where bit 15 of qh[s] is set, -1/8. Bits 12..14 are the scale, 3 j .. 3 j + 2 the
// high bits of the index of group 4 s + j, whose low eight are qs[4 s + j].
struct BlockIQ1_S {
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};

// The same formula for 16 sub-blocks s of 16. Nibble g of qh: three high bits of the index of group
// g, and the sign of its delta. Scale s is bits 3 (s % 4) of word s / 4 of `scales`, whose top
// nibbles are d, lowest first.
struct BlockIQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint16_t scales[4];
};

// x = d * (t - 1), t = 0, 1, 2: base 3, five digits a byte, the byte scaled by 256 / 243 (rounded
// up) so that the next digit is the carry of a multiplication by 3. Digit k of qs[l] is value 32 k
// + l (l < 32), and 160 + 16 k + l - 32 behind; digit k of qh[l], of four, is value 240 + 4 k + l.
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};

// x = d * (t - 1), t = 0..3, two bits each placed as in Q2_K.
struct BlockTQ2_0 {
  uint8_t qs[64];
  uint16_t d;
};

#pragma pack(pop)

#define REPRISE_SIZE(name, text, elements, bytes, id) static_assert(sizeof(Block##name) == bytes);
REPRISE_QUANTISED_TYPES(REPRISE_SIZE)
#undef REPRISE_SIZE

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

// The points of the grids (grids.gen.cc). Two bits of a point of kIQ2*Grid select a magnitude,
// value i in bits 2i and 2i + 1: kIQ2Magnitudes[p >> 2i & 3]; the code 3 does not occur. Those of
// kIQ1Grid are -1, 0, 1 in the same way. Points of kIQ3*Grid are four codes of four bits, of which
// three are used: kIQ3XXSMagnitudes[p >> 4i & 7], and 2 * code + 1 for IQ3_S.
extern const uint16_t kIQ2Grid[256];
extern const uint16_t kIQ2XSGrid[512];
extern const uint16_t kIQ2SGrid[1024];
extern const uint16_t kIQ3XXSGrid[256];
extern const uint16_t kIQ3SGrid[512];
extern const uint16_t kIQ1Grid[2048];
inline constexpr uint8_t kIQ2Magnitudes[4] = {0x08, 0x19, 0x2b, 0};
inline constexpr uint8_t kIQ3XXSMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};

}  // namespace reprise
