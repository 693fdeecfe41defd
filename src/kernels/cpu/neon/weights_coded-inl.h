// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/neon/weights256-inl.h"

// Weight registers of the coded types (kernels/cpu/coded/blocks.h); weights-inl.h says what the
// classes have.
namespace reprise::cpu {
namespace {

// Two bits of a code, and the third of those that have it in a plane of their own.
template <class Packed>
inline uint8x16_t TwoBits(const Packed& b, int run, int step, int pair) {
  return vandq_u8(Shift(vld1q_u8(b.q[run / 4][step][pair]), -2 * (run % 4)), vdupq_n_u8(3));
}
template <class Packed>
inline uint8x16_t ThreeBits(const Packed& b, int run, int step, int pair) {
  const uint8x16_t third =
      vtstq_u8(vld1q_u8(b.high[step][pair]), vdupq_n_u8(static_cast<uint8_t>(1 << run)));
  return vorrq_u8(TwoBits(b, run, step, pair), vandq_u8(third, vdupq_n_u8(4)));
}

// 2 n + 1 for nibbles, or for three bits of them: kCount sub-blocks.
template <int kCount>
inline SubScales<kCount, 0> OddScales(const uint8_t (*nibbles)[8], uint8_t mask) {
  SubScales<kCount, 0> out;
  for (int i = 0; i < kCount; ++i) {
    const uint8x8_t byte = vld1_u8(nibbles[i / 2]);
    const uint8x8_t n =
        vand_u8(vshl_u8(byte, vdup_n_s8(static_cast<int8_t>(i % 2 * -4))), vdup_n_u8(mask));
    vst1_s8(out.scale[i], vreinterpret_s8_u8(vadd_u8(vshl_n_u8(n, 1), vdup_n_u8(1))));
  }
  return out;
}

alignas(16) constexpr int8_t kIQ1Levels[16] = {-7, 1, 9, 0, -9, -1, 7, 0};
alignas(16) constexpr int8_t kIQ2Levels[16] = {8, 25, 43, 0, -8, -25, -43, 0};
alignas(16) constexpr int8_t kIQ3XXSLevels[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                                  -4, -12, -20, -28, -36, -44, -52, -62};
alignas(16) constexpr int8_t kIQ3SLevels[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                                -1, -3, -5, -7, -9, -11, -13, -15};

struct IQ2_XXS {
  using Packed = neon::PackedIQ2_XXS;
  using Scales = SubScales<8, 0>;
  static constexpr float kUnit = 0.125f;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return OddScales<8>(b.scales, 15); }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ2Levels), ThreeBits(b, run, step, pair));
  }
};

struct IQ2_XS {
  using Packed = neon::PackedIQ2_XS;
  using Scales = SubScales<16, 0>;
  static constexpr float kUnit = 0.125f;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 16;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return OddScales<16>(b.scales, 15); }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ2Levels), ThreeBits(b, run, step, pair));
  }
};
struct IQ2_S : IQ2_XS {};

struct IQ3_XXS {
  using Packed = neon::PackedIQ3_XXS;
  using Scales = SubScales<8, 0>;
  static constexpr float kUnit = 0.25f;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) { return OddScales<8>(b.scales, 15); }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ3XXSLevels), SplitNibbles(b.q[run], step, pair));
  }
};
struct IQ3_S : IQ3_XXS {
  static constexpr float kUnit = 1;
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ3SLevels), SplitNibbles(b.q[run], step, pair));
  }
};

// Scales, and the third bits of codes as bytes of 0 or 4: kThirds for each row.
template <int kScaleCount, int kThirds>
struct ScalesAndThirds {
  alignas(16) int8_t scale[kScaleCount][8];
  alignas(16) uint8_t third[kThirds][8];

  // Bits shift.. of a byte as those of entry i.
  inline void SetThird(int i, uint8x8_t byte, int shift) {
    const uint8x8_t bit = vshl_u8(byte, vdup_n_s8(static_cast<int8_t>(2 - shift)));
    vst1_u8(third[i], vand_u8(bit, vdup_n_u8(4)));
  }
  inline uint8x16_t Third(int i, int pair) const {
    return vcombine_u8(vdup_n_u8(third[i][2 * pair]), vdup_n_u8(third[i][2 * pair + 1]));
  }
};

struct IQ1_S {
  using Packed = neon::PackedIQ1_S;
  using Scales = ScalesAndThirds<8, 8>;
  static constexpr float kUnit = 0.125f;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 32;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) {
    const SubScales<8, 0> scales = OddScales<8>(b.scales, 7);
    Scales out;
    __builtin_memcpy(out.scale, scales.scale, sizeof out.scale);
    for (int i = 0; i < 8; ++i) out.SetThird(i, vld1_u8(b.scales[i / 2]), i % 2 * 4 + 3);
    return out;
  }
  static inline int8x16_t Weight(const Packed& b, const Scales& scales, int run, int step,
                                 int pair) {
    const uint8x16_t code = vorrq_u8(TwoBits(b, run, step, pair), scales.Third(run, pair));
    return vqtbl1q_s8(vld1q_s8(kIQ1Levels), code);
  }
};

// A step is eight values, which have a third bit of their own.
struct IQ1_M {
  using Packed = neon::PackedIQ1_M;
  using Scales = ScalesAndThirds<16, 32>;
  static constexpr float kUnit = 0.125f;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 16;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed& b) {
    Scales out;
    for (int i = 0; i < 16; ++i) {
      const uint8x8_t byte = vld1_u8(b.scales[i]);
      const uint8x8_t twice = vshl_n_u8(vand_u8(byte, vdup_n_u8(7)), 1);
      vst1_s8(out.scale[i], vreinterpret_s8_u8(vadd_u8(twice, vdup_n_u8(1))));
      out.SetThird(2 * i, byte, 3);
      out.SetThird(2 * i + 1, byte, 4);
    }
    return out;
  }
  static inline int8x16_t Weight(const Packed& b, const Scales& scales, int run, int step,
                                 int pair) {
    const uint8x16_t third = scales.Third(4 * run + step, pair);
    return vqtbl1q_s8(vld1q_s8(kIQ1Levels), vorrq_u8(TwoBits(b, run, step, pair), third));
  }
};

// No sub-blocks: the scale of all is 1.
struct TQ1_0 {
  using Packed = neon::PackedTQ1_0;
  struct Scales {
    int8_t scale[1][8];
    int8_t min[1][8];
  };
  static constexpr float kUnit = 1;
  static constexpr int kMinima = 0;
  static constexpr int kSubBlock = 256;
  static constexpr int kShift = 0;
  static constexpr bool kNegated = false;
  static inline Scales Unpack(const Packed&) { return {}; }
  static inline int8x16_t Weight(const Packed& b, const Scales&, int run, int step, int pair) {
    return vsubq_s8(Signed(TwoBits(b, run, step, pair)), vdupq_n_s8(1));
  }
};
struct TQ2_0 : TQ1_0 {};

}  // namespace
}  // namespace reprise::cpu
