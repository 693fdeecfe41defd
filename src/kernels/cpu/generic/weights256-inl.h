// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/weights32-inl.h"
#include "kernels/cpu/interleave.h"

// Readers of interleaved 256-blocks. A block is kChunks chunks of kSubs sub-blocks of kSub values;
// Step(block, row, chunk, sub, i) holds the values 4i..4i+3 of a sub-block, Scale its integer scale
// per lane, and MinPair the minima that belong to the sums 2j (low half) and 2j + 1 of a block.
namespace reprise::cpu {
namespace {

template <typename V>
inline typename V::Int BothHalves(typename V::Int x) {
  return V::Or(x, V::template ShiftLeft<16>(x));
}

// The 6-bit scales and minima of Q4_K and Q5_K.
template <typename V>
inline typename V::Int Scale6(const uint8_t* scales, int row, int s) {
  const auto byte = [&](int j) { return V::WidenUnsigned(scales + j * kUnit1 + row); };
  if (s < 4) return V::And(byte(s), V::Set(63));
  const auto high = V::ShiftRight(byte(s - 4), 6);
  return V::Or(V::And(byte(s + 4), V::Set(15)), V::template ShiftLeft<4>(high));
}
template <typename V>
inline typename V::Int Min6(const uint8_t* scales, int row, int s) {
  const auto byte = [&](int j) { return V::WidenUnsigned(scales + j * kUnit1 + row); };
  if (s < 4) return V::And(byte(s + 4), V::Set(63));
  const auto high = V::ShiftRight(byte(s), 6);
  return V::Or(V::ShiftRight(byte(s + 4), 4), V::template ShiftLeft<4>(high));
}

template <typename V>
struct WeightsQ4_K {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 144;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static constexpr int kMost = 15;
  static constexpr int kChunks = 4, kSubs = 2, kSub = 32;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* qs = block + 2 * kUnit2 + 12 * kUnit1;
    const Int word = V::Load(qs + (8 * chunk + i) * kUnit4 + row * 4);
    return V::And(sub == 0 ? word : V::template ShiftRight<4>(word), V::Set(0x0F0F0F0F));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return Scale6<V>(block + 2 * kUnit2, row, s);
  }
  static Int MinPair(const uint8_t* block, int row, int j) {
    return BothHalves<V>(Min6<V>(block + 2 * kUnit2, row, j));
  }
};

template <typename V>
struct WeightsQ5_K {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 176;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static constexpr int kMost = 31;
  static constexpr int kChunks = 4, kSubs = 2, kSub = 32;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* qh = block + 2 * kUnit2 + 12 * kUnit1;
    const uint8_t* qs = qh + 8 * kUnit4;
    const Int word = V::Load(qs + (8 * chunk + i) * kUnit4 + row * 4);
    const Int low = V::And(sub == 0 ? word : V::template ShiftRight<4>(word), V::Set(0x0F0F0F0F));
    const Int fifth = V::ShiftRight(V::Load(qh + i * kUnit4 + row * 4), 2 * chunk + sub);
    return V::Or(low, V::template ShiftLeft<4>(V::And(fifth, V::Set(0x01010101))));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return Scale6<V>(block + 2 * kUnit2, row, s);
  }
  static Int MinPair(const uint8_t* block, int row, int j) {
    return BothHalves<V>(Min6<V>(block + 2 * kUnit2, row, j));
  }
};

// The two bits of sub-block `sub` of a chunk of 128 values: Q2_K, Q3_K and the high bits of Q6_K.
template <typename V>
inline typename V::Int TwoBitStep(const uint8_t* qs, int row, int chunk, int sub, int i) {
  const int word = 8 * chunk + 4 * (sub & 1) + i;
  const auto bits = V::ShiftRight(V::Load(qs + word * kUnit4 + row * 4), sub / 2 * 2);
  return V::And(bits, V::Set(0x03030303));
}

template <typename V>
struct WeightsQ2_K {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 84;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static constexpr int kMost = 3;
  static constexpr int kChunks = 2, kSubs = 8, kSub = 16;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    return TwoBitStep<V>(block + 2 * kUnit2 + 16 * kUnit1, row, chunk, sub, i);
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return V::And(V::WidenUnsigned(block + 2 * kUnit2 + s * kUnit1 + row), V::Set(15));
  }
  static Int MinPair(const uint8_t* block, int row, int j) {
    const uint8_t* scales = block + 2 * kUnit2 + 2 * j * kUnit1 + row;
    const Int low = V::ShiftRight(V::WidenUnsigned(scales), 4);
    const Int high = V::ShiftRight(V::WidenUnsigned(scales + kUnit1), 4);
    return V::Or(low, V::template ShiftLeft<16>(high));
  }
};

template <typename V>
struct WeightsQ3_K {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 110;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 4;
  static constexpr int kMost = 7;
  static constexpr int kChunks = 2, kSubs = 8, kSub = 16;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* hmask = block + kUnit2 + 12 * kUnit1;
    const Int low = TwoBitStep<V>(hmask + 8 * kUnit4, row, chunk, sub, i);
    const Int third =
        V::ShiftRight(V::Load(hmask + (4 * (sub & 1) + i) * kUnit4 + row * 4), 4 * chunk + sub / 2);
    return V::Or(low, V::template ShiftLeft<2>(V::And(third, V::Set(0x01010101))));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    const uint8_t* scales = block + kUnit2 + row;
    const Int byte = V::WidenUnsigned(scales + s % 8 * kUnit1);
    const Int low = V::And(V::ShiftRight(byte, s / 8 * 4), V::Set(15));
    const Int top = V::WidenUnsigned(scales + (8 + s % 4) * kUnit1);
    const Int high = V::And(V::ShiftRight(top, s / 4 * 2), V::Set(3));
    return V::Add(V::Or(low, V::template ShiftLeft<4>(high)), V::Set(-32));
  }
};

template <typename V>
struct WeightsQ6_K {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 210;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 32;
  static constexpr int kMost = 63;
  static constexpr int kChunks = 2, kSubs = 8, kSub = 16;
  static Int Step(const uint8_t* block, int row, int chunk, int sub, int i) {
    const uint8_t* ql = block + kUnit2 + 16 * kUnit1;
    const uint8_t* qh = ql + 32 * kUnit4;
    const int quarter = sub / 2;
    const int word = 16 * chunk + 8 * (quarter & 1) + 4 * (sub & 1) + i;
    const Int both = V::Load(ql + word * kUnit4 + row * 4);
    const Int low =
        V::And(quarter < 2 ? both : V::template ShiftRight<4>(both), V::Set(0x0F0F0F0F));
    return V::Or(low, V::template ShiftLeft<4>(TwoBitStep<V>(qh, row, chunk, sub, i)));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    return V::WidenSigned(block + kUnit2 + s * kUnit1 + row);
  }
};

template <typename V>
struct WeightsIQ4_XS {
  using Int = typename V::Int;
  static constexpr int kBlock = 256;
  static constexpr float kUnit = 1;
  static constexpr int kBytes = 32 * 136;
  static constexpr bool kSigned = true;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 0;
  static constexpr int kChunks = 8, kSubs = 1, kSub = 32;
  static Int Step(const uint8_t* block, int row, int chunk, int, int i) {
    const uint8_t* qs = block + 2 * kUnit2 + 4 * kUnit1 + 4 * chunk * kUnit4;
    return V::Lookup(kLevels, NibbleStep<V>(qs, row, i));
  }
  static Int Scale(const uint8_t* block, int row, int s) {
    const uint8_t* scales_l = block + 2 * kUnit2;
    const Int byte = V::WidenUnsigned(scales_l + s / 2 * kUnit1 + row);
    const Int low = V::And(V::ShiftRight(byte, s % 2 * 4), V::Set(15));
    const Int word = V::WidenUnsigned16(block + kUnit2 + row * 2);
    const Int high = V::And(V::ShiftRight(word, 2 * s), V::Set(3));
    return V::Add(V::Or(low, V::template ShiftLeft<4>(high)), V::Set(-32));
  }
};

}  // namespace
}  // namespace reprise::cpu
