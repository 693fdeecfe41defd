// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/quantised/layout.h"
#include "tensor/blocks.h"

// Units of layout.h in registers or shared memory, as the integers that products multiply with:
// those of kernels/reference/integer_block.cc, sub-block scale and value apart.
namespace reprise::cuda {

enum class SubScales : uint8_t { kNone, kByUnit, kByHalf };

// What a kernel knows of a type when it is compiled.
template <DType kType>
struct UnitTraits {
  static constexpr bool kBytes = kType == DType::kQ8_0;
  static constexpr bool kPairs = kType == DType::kQ2_K || kType == DType::kQ3_K;
  static constexpr bool kGrid = kType == DType::kIQ2_XXS;
  static constexpr bool kLevels = kType == DType::kIQ4_NL || kType == DType::kIQ4_XS;
  static constexpr bool kBits = kType == DType::kQ5_0 || kType == DType::kQ5_1 ||
                                kType == DType::kQ3_K || kType == DType::kQ5_K;
  static constexpr int kQuantWords = kBytes ? 8 : kPairs || kGrid ? 2 : 4;
  static constexpr int kExtraWords = kBits ? 1 : kType == DType::kQ6_K ? 2 : 0;
  static constexpr bool kBlock256 = kPairs || kGrid || kType == DType::kQ4_K ||
                                    kType == DType::kQ5_K || kType == DType::kQ6_K ||
                                    kType == DType::kIQ4_XS;
  static constexpr int kBlockUnits = kBlock256 ? 8 : 1;
  static constexpr bool kMinimum = kType == DType::kQ4_1 || kType == DType::kQ5_1 ||
                                   kType == DType::kQ2_K || kType == DType::kQ4_K ||
                                   kType == DType::kQ5_K;
  static constexpr int kSubBytes = !kBlock256 || kGrid ? 0 : kType == DType::kIQ4_XS ? 8 : 16;
  static constexpr SubScales kSub = !kBlock256                        ? SubScales::kNone
                                    : kPairs || kType == DType::kQ6_K ? SubScales::kByHalf
                                                                      : SubScales::kByUnit;
  // A value is its bits less this.
  static constexpr int kOffset = kType == DType::kQ4_0   ? 8
                                 : kType == DType::kQ5_0 ? 16
                                 : kType == DType::kQ3_K ? 4
                                 : kType == DType::kQ6_K ? 32
                                                         : 0;
  static constexpr bool kPlainNibbles =
      kType == DType::kQ4_0 || kType == DType::kQ4_1 || kType == DType::kQ4_K;
};

__device__ inline float FromHalf(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// d of a block from its f16 scales (a word where there are two).
template <DType kType>
__device__ float BlockScale(uint32_t scales) {
  const float d = FromHalf(scales & 0xFFFF);
  return kType == DType::kIQ2_XXS ? d * 0.125f : d;  // exact: scales become integers
}
// m or dmin.
__device__ inline float BlockMinimum(uint32_t scales) { return FromHalf(scales >> 16); }

// v - c in each byte; v, c <= 127.
__device__ inline uint32_t SubtractBytes(uint32_t v, uint32_t c) {
  return ((v | 0x80808080) - c * 0x01010101u) ^ 0x80808080;
}

// Levels 4 k .. 4 k + 3 of the IQ4 types.
constexpr uint32_t LevelWord(int k) {
  uint32_t word = 0;
  for (int c = 0; c < 4; ++c) word |= uint32_t{uint8_t(kIQ4Values[4 * k + c])} << (8 * c);
  return word;
}

// kIQ4Values of the eight nibbles of a word: those of the low nibbles and those of the high ones.
__device__ inline uint2 LevelsOf(uint32_t nibbles) {
  constexpr uint32_t k0 = LevelWord(0), k1 = LevelWord(1), k2 = LevelWord(2), k3 = LevelWord(3);
  const uint32_t place = nibbles & 0x77777777;
  const uint32_t choice = (nibbles & 0x88888888) >> 1 | 0x32103210;
  const uint32_t first =
      __byte_perm(__byte_perm(k0, k1, place), __byte_perm(k2, k3, place), choice);
  const uint32_t second =
      __byte_perm(__byte_perm(k0, k1, place >> 16), __byte_perm(k2, k3, place >> 16), choice >> 16);
  return {__byte_perm(first, second, 0x6420), __byte_perm(first, second, 0x7531)};
}

// Four magnitudes with the signs of four bits.
__device__ inline uint32_t Signed(uint32_t magnitudes, uint32_t signs) {
  const uint32_t ones = (signs & 15) * 0x00204081u & 0x01010101;
  return (magnitudes ^ ones * 0xFF) + ones;
}

// The words of a unit that make up its word pair i.
template <DType kType>
struct UnitWords {
  using Traits = UnitTraits<kType>;
  static constexpr int kQuants = Traits::kBytes || Traits::kGrid ? 2 : 1;
  static constexpr int kExtras = Traits::kExtraWords > 0 ? 1 : 0;

  uint32_t quants[kQuants];
  uint32_t extra;

  // Which words of the unit's planes they are.
  __device__ static int Quant(int i, int k) {
    return Traits::kBytes ? 4 * k + i : Traits::kGrid ? k : Traits::kPairs ? i / 2 : i;
  }
  __device__ static int Extra(int i) { return Traits::kExtraWords == 2 ? i / 2 : 0; }
};

// One half (i % 2) of group `group` of a unit of IQ2_XXS.
__device__ inline uint32_t GridWord(const uint32_t (&quants)[2], const uint2* grid, int group,
                                    int i) {
  const uint2 point = grid[quants[0] >> (8 * group) & 255];
  const uint32_t seven = quants[1] >> (7 * group) & 127;
  const uint32_t signs = seven | (__popc(seven) & 1) << 7;
  return Signed(i % 2 == 0 ? point.x : point.y, signs >> (4 * (i % 2)));
}

// Word pair i of a unit: four int8 values each, from which kOffset was not yet taken.
template <DType kType>
__device__ uint2 BitsPair(const UnitWords<kType>& words, const uint2* grid, int i) {
  using Traits = UnitTraits<kType>;
  const uint32_t word = words.quants[0];
  if constexpr (Traits::kBytes) return {word, words.quants[1]};
  if constexpr (Traits::kGrid) {
    return {GridWord(words.quants, grid, i / 2, i), GridWord(words.quants, grid, 2 + i / 2, i)};
  }
  if constexpr (Traits::kLevels) return LevelsOf(word);
  uint2 pair;
  if constexpr (Traits::kPairs) {
    const uint32_t two = word >> (4 * (i % 2));
    pair = {two & 0x03030303, two >> 2 & 0x03030303};
  } else {
    pair = {word & 0x0F0F0F0F, word >> 4 & 0x0F0F0F0F};
  }
  if constexpr (Traits::kBits) {
    constexpr int kPlace = Traits::kPairs ? 2 : 4;
    const uint32_t bits = words.extra >> (2 * i);
    pair.x |= (bits & 0x01010101) << kPlace;
    pair.y |= (bits >> 1 & 0x01010101) << kPlace;
  }
  if constexpr (kType == DType::kQ6_K) {
    const uint32_t high = words.extra >> (4 * (i % 2));
    pair.x |= (high & 0x03030303) << 4;
    pair.y |= (high & 0x0C0C0C0C) << 2;
  }
  return pair;
}

// Word pair i of a unit: four int8 values each.
template <DType kType>
__device__ uint2 WordPair(const UnitWords<kType>& words, const uint2* grid, int i) {
  constexpr int kOffset = UnitTraits<kType>::kOffset;
  const uint2 pair = BitsPair<kType>(words, grid, i);
  if constexpr (kOffset == 0) return pair;
  return {SubtractBytes(pair.x, kOffset), SubtractBytes(pair.y, kOffset)};
}

// The integer scales and minima of the two halves of unit u of a 256-block. `sub`: the block's
// kSubBytes; signs: word 1 of a unit of IQ2_XXS, whose scale is there.
struct HalfScales {
  int scale[2];
  int min[2];
};
template <DType kType>
__device__ HalfScales SubScalesOf(const uint8_t* sub, uint32_t signs, int u) {
  if constexpr (kType == DType::kIQ2_XXS) {
    const int scale = 2 * static_cast<int>(signs >> 28) + 1;
    return {{scale, scale}, {0, 0}};
  }
  if constexpr (kType == DType::kIQ4_XS) {
    const int scale = static_cast<int8_t>(sub[u]);
    return {{scale, scale}, {0, 0}};
  }
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    return {{sub[u], sub[u]}, {sub[8 + u], sub[8 + u]}};
  }
  const uint8_t first = sub[2 * u], second = sub[2 * u + 1];
  if constexpr (kType == DType::kQ2_K) {
    return {{first & 15, second & 15}, {first >> 4, second >> 4}};
  }
  return {{static_cast<int8_t>(first), static_cast<int8_t>(second)}, {0, 0}};
}

// Where the planes of a row begin.
template <DType kType>
struct RowPlanes {
  using Traits = UnitTraits<kType>;
  const std::byte* quants;
  const std::byte* extra;
  const std::byte* sub;
  const std::byte* scale;

  __device__ RowPlanes(const QuantisedMatrix& matrix, int64_t row) {
    const QuantisedLayout& layout = matrix.layout;
    quants = matrix.data + row * layout.quant_stride;
    extra = matrix.data + layout.extra + row * layout.extra_stride;
    sub = matrix.data + layout.sub + row * layout.sub_stride;
    scale = matrix.data + layout.scale + row * layout.scale_stride;
  }

  // Word w of the four units of a quad.
  __device__ const uint4* Quants(int64_t quad, int w) const {
    return reinterpret_cast<const uint4*>(quants) + quad * Traits::kQuantWords + w;
  }
  __device__ const uint4* Extra(int64_t quad, int w) const {
    return reinterpret_cast<const uint4*>(extra) + quad * Traits::kExtraWords + w;
  }
  __device__ const uint8_t* Sub(int64_t block) const {
    return reinterpret_cast<const uint8_t*>(sub) + block * Traits::kSubBytes;
  }
  // The block's f16 scales in one word.
  __device__ uint32_t Scales(int64_t block) const {
    if constexpr (Traits::kMinimum) return reinterpret_cast<const uint32_t*>(scale)[block];
    return reinterpret_cast<const uint16_t*>(scale)[block];
  }

  // The words of one unit.
  __device__ UnitWords<kType> Words(int64_t unit, int i) const {
    using Words = UnitWords<kType>;
    Words words = {};
#pragma unroll
    for (int k = 0; k < Words::kQuants; ++k) {
      words.quants[k] = Word(Quants(unit / 4, Words::Quant(i, k)), unit);
    }
    if constexpr (Words::kExtras > 0) words.extra = Word(Extra(unit / 4, Words::Extra(i)), unit);
    return words;
  }

 private:
  __device__ static uint32_t Word(const uint4* four, int64_t unit) {
    return reinterpret_cast<const uint32_t*>(four)[unit % 4];
  }
};

__host__ __device__ inline const uint2* GridOf(const QuantisedMatrix& matrix) {
  return reinterpret_cast<const uint2*>(matrix.data + matrix.layout.grid);
}

}  // namespace reprise::cuda
