// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Readers of interleaved 32-blocks (kernels/cpu/interleave.h) for an integer vector V of an ISA:
// how V::kLanes rows of a block become bytes. Step(block, row, i) holds the values 4i..4i+3 of the
// rows row, row + 1, ... as 4 bytes per lane; kSigned says how to read them, kOffset what they are
// too large by. ScaleOf<V, W>(block, row) is d of these rows.
namespace reprise::cpu {
namespace {

constexpr int kUnit1 = 32;  // bytes of one unit of all 32 rows, by unit size
constexpr int kUnit2 = 64;
constexpr int kUnit4 = 128;

// Nibbles of the words 4m: low ones are the steps m, high ones the steps m + 4.
template <typename V>
inline typename V::Int NibbleStep(const uint8_t* qs, int row, int i) {
  const auto word = V::Load(qs + (i & 3) * kUnit4 + row * 4);
  return V::And(i < 4 ? word : V::template ShiftRight<4>(word), V::Set(0x0F0F0F0F));
}

// The fifth bits of step i, in place.
template <typename V>
inline typename V::Int FifthBits(const uint8_t* qh, int row, int i) {
  const auto word = V::ShiftRight(V::Load(qh + row * 4), i);
  return V::template ShiftLeft<4>(V::And(word, V::Set(0x01010101)));
}

template <typename V>
struct WeightsQ8_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 34;
  static constexpr bool kSigned = true;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 0;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    return V::Load(block + kUnit2 + i * kUnit4 + row * 4);
  }
};

template <typename V>
struct WeightsQ4_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 18;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 8;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    return NibbleStep<V>(block + kUnit2, row, i);
  }
};

template <typename V>
struct WeightsQ4_1 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 20;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    return NibbleStep<V>(block + 2 * kUnit2, row, i);
  }
};

template <typename V>
struct WeightsQ5_0 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 22;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 16;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    const uint8_t* qh = block + kUnit2;
    return V::Or(NibbleStep<V>(qh + kUnit4, row, i), FifthBits<V>(qh, row, i));
  }
};

template <typename V>
struct WeightsQ5_1 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 24;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = true;
  static constexpr int kOffset = 0;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    const uint8_t* qh = block + 2 * kUnit2;
    return V::Or(NibbleStep<V>(qh + kUnit4, row, i), FifthBits<V>(qh, row, i));
  }
};

// kMXFP4Values of tensor/blocks.h, raised by 12: no level is negative, which saves the sign.
constexpr int8_t kRaisedMXFP4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

template <typename V>
struct WeightsMXFP4 {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 17;
  static constexpr bool kSigned = false;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 12;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    return V::Lookup(kRaisedMXFP4, NibbleStep<V>(block + kUnit1, row, i));
  }
  // 2^(e - 128) as the product of two powers about half as far from 1: neither is subnormal, so no
  // exponent is a special case.
  static typename V::Float Scale(const uint8_t* block, int row) {
    const auto e = V::WidenUnsigned(block + row);
    const auto power = [](typename V::Int half) {  // 2^(half - 64)
      return V::AsFloat(V::template ShiftLeft<23>(V::Add(half, V::Set(63))));
    };
    const auto low = V::template ShiftRight<1>(e);
    const auto high = V::template ShiftRight<1>(V::Add(e, V::Set(1)));
    return V::Mul(power(low), power(high));
  }
};

// kIQ4Values of tensor/blocks.h.
constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

template <typename V>
struct WeightsIQ4_NL {
  static constexpr int kBlock = 32;
  static constexpr int kBytes = 32 * 18;
  static constexpr bool kSigned = true;
  static constexpr bool kMinimum = false;
  static constexpr int kOffset = 0;
  static typename V::Int Step(const uint8_t* block, int row, int i) {
    return V::Lookup(kLevels, NibbleStep<V>(block + kUnit2, row, i));
  }
};

template <typename V, typename W>
inline typename V::Float ScaleOf(const uint8_t* block, int row) {
  if constexpr (requires { W::Scale(block, row); }) {
    return W::Scale(block, row);
  } else {
    return V::LoadHalves(block + row * 2);
  }
}

}  // namespace
}  // namespace reprise::cpu
