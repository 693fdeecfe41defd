// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/weights-inl.h"

// Weight registers of the 256-blocks; weights-inl.h says what the classes have.
namespace reprise::cpu {
namespace {

// Scales and minima of a super-block as bytes: [sub-block][row].
template <int kScaleCount, int kMinCount>
struct SubScales {
  alignas(16) int8_t scale[kScaleCount][8];
  alignas(16) int8_t min[kMinCount > 0 ? kMinCount : 1][8];
};

// Two sub-blocks.
inline void StorePair(int8_t (*out)[8], uint8x16_t v) { vst1q_s8(out[0], Signed(v)); }

// The six-bit scales and minima of Q4_K and Q5_K.
inline SubScales<8, 8> SixBitScales(const uint8_t (*bytes)[8]) {
  SubScales<8, 8> out;
  const uint8x16_t low6 = vdupq_n_u8(63), high2 = vdupq_n_u8(0x30);
  for (int i = 0; i < 4; i += 2) {
    const uint8x16_t s = vld1q_u8(bytes[i]), m = vld1q_u8(bytes[4 + i]);
    const uint8x16_t later = vld1q_u8(bytes[8 + i]);
    StorePair(out.scale + i, vandq_u8(s, low6));
    StorePair(out.min + i, vandq_u8(m, low6));
    StorePair(out.scale + 4 + i, vorrq_u8(LowNibbles(later), vandq_u8(vshrq_n_u8(s, 2), high2)));
    StorePair(out.min + 4 + i, vorrq_u8(HighNibbles(later), vandq_u8(vshrq_n_u8(m, 2), high2)));
  }
  return out;
}

struct Q4_K {
  using Packed = neon::PackedQ4_K;
  using Scales = SubScales<8, 8>;
  static constexpr int kMinima = 8;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return SixBitScales(b.scales); }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    const uint8x16_t bytes = vld1q_u8(b.q[run / 2][step][pair]);
    return Signed(run % 2 == 0 ? LowNibbles(bytes) : HighNibbles(bytes));
  }
};

struct Q5_K {
  using Packed = neon::PackedQ5_K;
  using Scales = SubScales<8, 8>;
  static constexpr int kMinima = 8;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return SixBitScales(b.scales); }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    const uint8x16_t bytes = vld1q_u8(b.q[run / 2][step][pair]);
    const uint8x16_t low = run % 2 == 0 ? LowNibbles(bytes) : HighNibbles(bytes);
    const uint8x16_t high = Shift(vld1q_u8(b.high[step][pair]), 4 - run);
    return Signed(vbslq_u8(vdupq_n_u8(16), high, low));
  }
};

// q - 32 as a signed six-bit number in the upper bits of a byte is four times the value.
struct Q6_K {
  using Packed = neon::PackedQ6_K;
  struct Scales {
    const int8_t (*scale)[8];
  };
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 16;
  static constexpr int kShift = 2;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return {b.scales}; }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    const int half = run / 4, k = run % 4;
    const uint8x16_t low = vld1q_u8(b.low[half][k % 2][step][pair]);
    const uint8x16_t high = Shift(vld1q_u8(b.high[half][step][pair]), 6 - 2 * k);
    // Two bits from `high` on top, four from `low` below them, two zeros.
    if (k < 2) return Signed(vsriq_n_u8(high, vshlq_n_u8(low, 4), 2));
    return Signed(vandq_u8(vsriq_n_u8(high, low, 2), vdupq_n_u8(0xFC)));
  }
};

// The scale of each byte of W[step][pair]; sub-blocks of 16 are two steps.
inline int8x16_t SpreadScales(const int8_t (*scale)[8], int run, int step, int pair) {
  const uint8_t even = static_cast<uint8_t>(step / 2 * 8 + 2 * pair);
  const uint8x16_t index = vcombine_u8(vdup_n_u8(even), vdup_n_u8(static_cast<uint8_t>(even + 1)));
  return vqtbl1q_s8(vld1q_s8(scale[2 * run]), index);
}

// A scale of four bits times a weight of two fits a byte: the product has no scales to care for.
struct Q2_K {
  using Packed = neon::PackedQ2_K;
  using Scales = SubScales<16, 16>;
  static constexpr int kMinima = 16;
  static constexpr int kSubBlock = 256;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) {
    Scales out;
    for (int i = 0; i < 16; i += 2) {
      const uint8x16_t both = vld1q_u8(b.scales[i]);
      StorePair(out.scale + i, LowNibbles(both));
      StorePair(out.min + i, HighNibbles(both));
    }
    return out;
  }
  static inline int8x16_t Weight(const Packed& b, const Scales& scales, int run, int step,
                                 int pair) {
    const uint8x16_t q = Shift(vld1q_u8(b.q[run / 4][step][pair]), -2 * (run % 4));
    return vmulq_s8(Signed(vandq_u8(q, vdupq_n_u8(3))),
                    SpreadScales(scales.scale, run, step, pair));
  }
};

// (scale - 32) (q - 4) is in [-124, 128]: its negative fits a byte. `scale` is 32 - scale here.
struct Q3_K {
  using Packed = neon::PackedQ3_K;
  using Scales = SubScales<16, 0>;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 256;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = true;
  static inline Scales Unpack(const Packed& b) {
    Scales out;
    const uint8x16_t two = vdupq_n_u8(0x30), bias = vdupq_n_u8(32);
    for (int i = 0; i < 4; i += 2) {
      const uint8x16_t a = vld1q_u8(b.scales[i]), c = vld1q_u8(b.scales[4 + i]);
      const uint8x16_t high = vld1q_u8(b.scales[8 + i]);
      const uint8x16_t scale[4] = {
          vorrq_u8(LowNibbles(a), vandq_u8(vshlq_n_u8(high, 4), two)),
          vorrq_u8(LowNibbles(c), vandq_u8(vshlq_n_u8(high, 2), two)),
          vorrq_u8(HighNibbles(a), vandq_u8(high, two)),
          vorrq_u8(HighNibbles(c), vandq_u8(vshrq_n_u8(high, 2), two)),
      };
      for (int j = 0; j < 4; ++j) StorePair(out.scale + 4 * j + i, vsubq_u8(bias, scale[j]));
    }
    return out;
  }
  static inline int8x16_t Weight(const Packed& b, const Scales& scales, int run, int step,
                                 int pair) {
    const uint8x16_t two =
        vandq_u8(Shift(vld1q_u8(b.q[run / 4][step][pair]), -2 * (run % 4)), vdupq_n_u8(3));
    const uint8x16_t third =
        vtstq_u8(vld1q_u8(b.high[step][pair]), vdupq_n_u8(static_cast<uint8_t>(1 << run)));
    // Minus four where the third bit is clear.
    const uint8x16_t value = vorrq_u8(two, vbicq_u8(vdupq_n_u8(0xFC), third));
    return vmulq_s8(Signed(value), SpreadScales(scales.scale, run, step, pair));
  }
};

struct IQ4_XS {
  using Packed = neon::PackedIQ4_XS;
  using Scales = SubScales<8, 0>;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) {
    Scales out;
    for (int i = 0; i < 8; ++i) {
      const int8x8_t low_shift = vdup_n_s8(static_cast<int8_t>(i % 2 * -4));
      const int8x8_t high_shift = vdup_n_s8(static_cast<int8_t>(4 - i % 4 * 2));
      const uint8x8_t low = vshl_u8(vld1_u8(b.scales[2 + i / 2]), low_shift);
      const uint8x8_t high = vshl_u8(vld1_u8(b.scales[i / 4]), high_shift);
      const uint8x8_t six = vorr_u8(vand_u8(low, vdup_n_u8(15)), vand_u8(high, vdup_n_u8(0x30)));
      vst1_s8(out.scale[i], vreinterpret_s8_u8(vsub_u8(six, vdup_n_u8(32))));
    }
    return out;
  }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ4Levels), SplitNibbles(b.q[run], step, pair));
  }
};

}  // namespace
}  // namespace reprise::cpu
