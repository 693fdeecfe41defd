// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/neon/packed.h"

// From packed bits to weight registers W[step][pair] (packed.h): what every integer product on
// aarch64 starts with. One class per type, for use as a template argument. Everything is in an
// anonymous namespace, because the folders that include it are compiled for different CPUs.
//
// Every class has (those of 32-blocks here, those of 256-blocks in weights256-inl.h)
//   Packed                    the packed block
//   kShift                    weights come multiplied by 2^kShift, where that saves instructions
// those of 32-blocks
//   kMinimum                  whether there is an m
//   Weight(b, step, pair)
// and those of 256-blocks
//   kSubBlock                 values that share a scale: 16 or 32; 256 where Weight has multiplied
//                             by it already
//   kMinima                   minima per block: 0, 8 (one per run of 32 values) or 16
//   kNegated                  weights come negated
//   kUnit                     of coded types: what d is multiplied by
//   Scales, Unpack(b)         scale[i][row] of sub-block i, and min[i][row]
//   Weight(b, scales, run, step, pair)
namespace reprise::cpu {
namespace {

inline int8x16_t Signed(uint8x16_t v) { return vreinterpretq_s8_u8(v); }
inline uint8x16_t LowNibbles(uint8x16_t v) { return vandq_u8(v, vdupq_n_u8(15)); }
inline uint8x16_t HighNibbles(uint8x16_t v) { return vshrq_n_u8(v, 4); }

// Left by a count that may be negative.
inline uint8x16_t Shift(uint8x16_t v, int count) {
  return vshlq_u8(v, vdupq_n_s8(static_cast<int8_t>(count)));
}

inline float32x4x2_t LoadHalves(const uint16_t* d) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(d));
  return {{vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)}};
}

// Low nibbles of two step registers are steps 0 and 1, high ones 2 and 3.
inline uint8x16_t SplitNibbles(const neon::StepRegisters* q, int step, int pair) {
  const uint8x16_t bytes = vld1q_u8(q[step % 2][pair]);
  return step < 2 ? LowNibbles(bytes) : HighNibbles(bytes);
}

alignas(16) constexpr int8_t kIQ4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

struct Q8_0 {
  using Packed = neon::PackedQ8_0;
  static constexpr bool kMinimum = false;
  static constexpr int kShift = 0;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    return vld1q_s8(b.q[step][pair]);
  }
};

// A signed nibble in the upper half of a byte is the value times 16, for one instruction.
struct Q4_0 {
  using Packed = neon::PackedQ4_0;
  static constexpr bool kMinimum = false;
  static constexpr int kShift = 4;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    const uint8x16_t bytes = vld1q_u8(b.q[step % 2][pair]);
    return Signed(step < 2 ? vshlq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(0xF0)));
  }
};

struct Q4_1 {
  using Packed = neon::PackedQ4_1;
  static constexpr bool kMinimum = true;
  static constexpr int kShift = 0;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    return Signed(SplitNibbles(b.q, step, pair));
  }
};

struct IQ4_NL {
  using Packed = neon::PackedIQ4_NL;
  static constexpr bool kMinimum = false;
  static constexpr int kShift = 0;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kIQ4Levels), SplitNibbles(b.q, step, pair));
  }
};

// kMXFP4Values of tensor/blocks.h.
alignas(16) constexpr int8_t kMXFP4Levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

struct MXFP4 {
  using Packed = neon::PackedMXFP4;
  static constexpr bool kMinimum = false;
  static constexpr int kShift = 0;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    return vqtbl1q_s8(vld1q_s8(kMXFP4Levels), SplitNibbles(b.q, step, pair));
  }
};

// The fifth bits of W[step][pair], moved to bit `place`; the other bits are anything.
inline uint8x16_t FifthBits(const neon::Register* high, int step, int pair, int place) {
  return Shift(vld1q_u8(high[pair / 2]), place - (pair % 2 * 4 + step));
}

// q - 16 as a signed five-bit number in the upper bits of a byte is eight times the value.
struct Q5_0 {
  using Packed = neon::PackedQ5_0;
  static constexpr bool kMinimum = false;
  static constexpr int kShift = 3;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    const uint8x16_t bytes = vld1q_u8(b.q[step % 2][pair]);
    const uint8x16_t four =
        step < 2 ? vshlq_n_u8(bytes, 3) : vandq_u8(vshrq_n_u8(bytes, 1), vdupq_n_u8(0x78));
    return Signed(vbslq_u8(vdupq_n_u8(0x80), FifthBits(b.high, step, pair, 7), four));
  }
};

struct Q5_1 {
  using Packed = neon::PackedQ5_1;
  static constexpr bool kMinimum = true;
  static constexpr int kShift = 0;
  static inline int8x16_t Weight(const Packed& b, int step, int pair) {
    const uint8x16_t fifth = FifthBits(b.high, step, pair, 4);
    return Signed(vbslq_u8(vdupq_n_u8(16), fifth, SplitNibbles(b.q, step, pair)));
  }
};

// d of eight rows, as the products use it: times kUnit, of the types that have one.
template <class F>
inline float32x4x2_t LoadScale(const typename F::Packed& b) {
  const float32x4x2_t d = LoadHalves(b.d);
  if constexpr (requires { F::kUnit; }) {
    return {{vmulq_n_f32(d.val[0], F::kUnit), vmulq_n_f32(d.val[1], F::kUnit)}};
  } else {
    return d;
  }
}

// 2^(e - 128) as the product of two powers about half as far from 1: neither is subnormal, so no
// exponent is a special case.
template <>
inline float32x4x2_t LoadScale<MXFP4>(const neon::PackedMXFP4& b) {
  const uint16x8_t e = vmovl_u8(vld1_u8(b.e));
  const uint16x8_t low = vshrq_n_u16(e, 1);
  const uint16x8_t high = vshrq_n_u16(vaddq_u16(e, vdupq_n_u16(1)), 1);
  const auto power = [](uint16x4_t half) {  // 2^(half - 64)
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vadd_u16(half, vdup_n_u16(63))), 23));
  };
  return {{vmulq_f32(power(vget_low_u16(low)), power(vget_low_u16(high))),
           vmulq_f32(power(vget_high_u16(low)), power(vget_high_u16(high)))}};
}

}  // namespace
}  // namespace reprise::cpu
