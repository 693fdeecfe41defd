// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/weights256-inl.h"
#include "kernels/cpu/interleave.h"

// Readers of the interleaved blocks of coded types (kernels/cpu/coded/blocks.h), as those of
// weights256-inl.h; and of such blocks when they have been widened to bytes for many tokens. A
// shuffle turns codes into values raised by kOffset, so that none is negative.
namespace reprise::cpu {
namespace {

// Scales of coded types: 2 * nibble + 1.
template <typename V>
inline typename V::Int OddScale(const uint8_t* scales, int row, int s) {
  const auto byte = V::WidenUnsigned(scales + s / 2 * kUnit1 + row);
  const auto nibble = V::And(V::ShiftRight(byte, s % 2 * 4), V::Set(15));
  return V::Add(V::template ShiftLeft<1>(nibble), V::Set(1));
}

// Codes of four bits.
template <typename V>
struct WeightsNibbleCodes {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr int kBytes = 32 * 134;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kChunks = 8, kSubs = 1, kSub = 32;
  static Int Code(const uint8_t* block, int row, int chunk, int i) {
    return NibbleStep<V>(block + kUnit2 + 4 * kUnit1 + 4 * chunk * kUnit4, row, i);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return OddScale<V>(block + kUnit2, row, s);
  }
};

constexpr int8_t kRaisedIQ3XXS[16] = {66, 74, 82, 90, 98, 106, 114, 124,
                                      58, 50, 42, 34, 26, 18,  10,  0};
template <typename V>
struct WeightsIQ3_XXS : WeightsNibbleCodes<V> {
  static constexpr float kUnit = 0.25f;
  static constexpr int kOffset = 62;
  static typename V::Int Step(const uint8_t* block, int row, int chunk, int, int i) {
    return V::Lookup(kRaisedIQ3XXS, WeightsNibbleCodes<V>::Code(block, row, chunk, i));
  }
};

constexpr int8_t kRaisedIQ3S[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};
template <typename V>
struct WeightsIQ3_S : WeightsNibbleCodes<V> {
  static constexpr float kUnit = 1;
  static constexpr int kOffset = 15;
  static typename V::Int Step(const uint8_t* block, int row, int chunk, int, int i) {
    return V::Lookup(kRaisedIQ3S, WeightsNibbleCodes<V>::Code(block, row, chunk, i));
  }
};

// The two bits of step i of sub-block `sub` of a chunk of 128, where sub-blocks are of 32.
template <typename V>
inline typename V::Int TwoBitStep32(const uint8_t* qs, int row, int chunk, int sub, int i) {
  const auto bits = V::ShiftRight(V::Load(qs + (8 * chunk + i) * kUnit4 + row * 4), 2 * sub);
  return V::And(bits, V::Set(0x03030303));
}

// Values of IQ2 by code, where a half of a byte holds the code and, at bit p, one of another's
// bits: in plane p, and (last) where it holds a code alone.
constexpr int8_t kRaisedIQ2[4][16] = {{51, 51, 68, 68, 86, 86, 0, 0, 35, 35, 18, 18, 0, 0, 0, 0},
                                      {51, 68, 51, 68, 86, 0, 86, 0, 35, 18, 35, 18, 0, 0, 0, 0},
                                      {51, 68, 86, 0, 51, 68, 86, 0, 35, 18, 0, 0, 35, 18, 0, 0},
                                      {51, 68, 86, 0, 35, 18, 0, 0}};

// Values of step i of a run of entwined codes; planes: [3][8 steps][32 rows][4].
template <typename V>
inline typename V::Int EntwinedStep(const uint8_t* planes, int row, int run, int i) {
  const auto plane = [&](int p) { return V::Load(planes + (8 * p + i) * kUnit4 + row * 4); };
  const auto part = [&](int p, int32_t mask) { return V::And(plane(p), V::Set(mask)); };
  if (run < 6) {
    const auto bytes = run % 2 == 0 ? plane(run / 2) : V::template ShiftRight<4>(plane(run / 2));
    return V::Lookup(kRaisedIQ2[run / 2], V::And(bytes, V::Set(0x0F0F0F0F)));
  }
  if (run == 6) {
    const auto code = V::Or(V::Or(part(0, 0x01010101), part(1, 0x02020202)), part(2, 0x04040404));
    return V::Lookup(kRaisedIQ2[3], code);
  }
  const auto code = V::Or(V::Or(part(0, 0x10101010), part(1, 0x20202020)), part(2, 0x40404040));
  return V::Lookup(kRaisedIQ2[3], V::template ShiftRight<4>(code));
}

template <typename V>
struct WeightsIQ2_XXS {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 0.125f;
  static constexpr int kBytes = 32 * 102;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 43;
  static constexpr int kChunks = 1, kSubs = 8, kSub = 32;
  static Int Step(const uint8_t* block, int row, int, int sub, int i) {
    return EntwinedStep<V>(block + kUnit2 + 4 * kUnit1, row, sub, i);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return OddScale<V>(block + kUnit2, row, s);
  }
};

template <typename V>
struct WeightsIQ2_XS {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 0.125f;
  static constexpr int kBytes = 32 * 106;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 43;
  static constexpr int kChunks = 2, kSubs = 8, kSub = 16;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    return EntwinedStep<V>(block + kUnit2 + 8 * kUnit1, row, sub, 4 * chunk + i);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return OddScale<V>(block + kUnit2, row, s);
  }
};
template <typename V>
using WeightsIQ2_S = WeightsIQ2_XS<V>;

constexpr int8_t kRaisedIQ1[16] = {2, 10, 18, 0, 0, 8, 16, 0};
// IQ1_M: by where the code and its third bit are in a half of a byte.
constexpr int8_t kRaisedIQ1M[4][16] = {{2, 10, 18, 0, 0, 8, 16, 0},               // 0-1, 2
                                       {2, 10, 18, 0, 0, 0, 0, 0, 0, 8, 16, 0},   // 0-1, 3
                                       {2, 0, 0, 0, 10, 8, 0, 0, 18, 16, 0, 0},   // 2-3, 0
                                       {2, 0, 0, 0, 10, 0, 8, 0, 18, 0, 16, 0}};  // 2-3, 1

// Bit `bit` of each lane's byte as the third bit of its four codes.
template <typename V>
inline typename V::Int ThirdBits(const uint8_t* scales, int bit) {
  const auto lane = V::And(V::ShiftRight(V::WidenUnsigned(scales), bit), V::Set(1));
  const auto pair = V::Or(V::template ShiftLeft<2>(lane), V::template ShiftLeft<10>(lane));
  return BothHalves<V>(pair);
}

template <typename V>
struct WeightsIQ1_S {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 0.125f;
  static constexpr int kBytes = 32 * 70;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 9;
  static constexpr int kChunks = 2, kSubs = 4, kSub = 32;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* scales = block + kUnit2;
    const int s = 4 * chunk + sub;
    const Int third = ThirdBits<V>(scales + s / 2 * kUnit1 + row, s % 2 * 4 + 3);
    const Int low = TwoBitStep32<V>(scales + 4 * kUnit1, row, chunk, sub, i);
    return V::Lookup(kRaisedIQ1, V::Or(low, third));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    const Int byte = V::WidenUnsigned(block + kUnit2 + s / 2 * kUnit1 + row);
    const Int scale = V::And(V::ShiftRight(byte, s % 2 * 4), V::Set(7));
    return V::Add(V::template ShiftLeft<1>(scale), V::Set(1));
  }
};

template <typename V>
struct WeightsIQ1_M {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 0.125f;
  static constexpr int kBytes = 32 * 82;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 9;
  static constexpr int kChunks = 2, kSubs = 8, kSub = 16;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* qs = block + kUnit2 + 16 * kUnit1;
    const Int word = V::Load(qs + (8 * chunk + 4 * (sub & 1) + i) * kUnit4 + row * 4);
    const Int half = sub < 4 ? word : V::template ShiftRight<4>(word);
    const bool upper = sub / 2 % 2 != 0, last = i >= 2;
    const Int third = V::And(Byte(block, row, 8 * chunk + sub),
                             V::Set((upper ? 0x01010101 : 0x04040404) << (last ? 1 : 0)));
    const Int code = V::And(half, V::Set(upper ? 0x0C0C0C0C : 0x03030303));
    return V::Lookup(kRaisedIQ1M[2 * upper + last], V::Or(code, third));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return V::template ShiftRight<28>(Byte(block, row, s));
  }

 private:
  static Int Byte(const uint8_t* block, int row, int s) {
    return V::Repeat(block + kUnit2 + s * kUnit1 + row);
  }
};

template <typename V>
struct WeightsTQ1_0 {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 66;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 1;
  static constexpr int kChunks = 2, kSubs = 4, kSub = 32;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    return TwoBitStep32<V>(block + kUnit2, row, chunk, sub, i);
  }
  static Int Scale(const uint8_t*, int, int) { return V::Set(1); }
};
template <typename V>
using WeightsTQ2_0 = WeightsTQ1_0<V>;

// A block of a coded type with sub-blocks of kSubValues whose codes have become bytes, values
// raised by 62: d as floats, bytes as [64 steps][32 rows][4], then scales as [sub-block][32 rows].
template <typename V, int kSubValues>
struct WidenedWeights {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr bool kFloatScale = true;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 62;
  static constexpr int kChunks = 4, kSubs = 64 / kSubValues, kSub = kSubValues;
  static constexpr int kScales = kUnit4 + 64 * kUnit4;
  static constexpr int kBytes = kScales + 256 / kSub * kUnit4;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const int step = (chunk * kSubs + sub) * (kSub / 4) + i;
    return V::Load(block + kUnit4 + step * kUnit4 + row * 4);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return V::Load(block + kScales + s * kUnit4 + row * 4);
  }
};

template <typename V, typename W>
void Widen(const uint8_t* block, uint8_t* out) {
  using Wide = WidenedWeights<V, W::kSub>;
  const auto raise = V::Set(0x01010101 * (Wide::kOffset - W::kOffset));
  for (int row = 0; row < 32; row += V::kLanes) {
    const auto d = V::Mul(V::LoadHalves(block + row * 2), V::SetFloat(W::kUnit));
    V::Store(reinterpret_cast<float*>(out) + row, d, V::kLanes);
    for (int chunk = 0; chunk < W::kChunks; ++chunk) {
#pragma GCC unroll 8
      for (int sub = 0; sub < W::kSubs; ++sub) {
        const int s = chunk * W::kSubs + sub;
        V::Store(out + Wide::kScales + s * kUnit4 + row * 4, W::Scale(block, row, s));
        for (int i = 0; i < W::kSub / 4; ++i) {
          V::Store(out + kUnit4 + (s * W::kSub / 4 + i) * kUnit4 + row * 4,
                   V::Add(W::Step(block, row, chunk, sub, i), raise));
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise::cpu
