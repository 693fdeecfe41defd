// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/quantised/unit.cuh"

// Weights and activations as the operands of integer tensor cores. Thread (g, i) of a warp, g =
// lane / 4 and i = lane % 4, holds of A [16, 32] the word pairs i of rows g and g + 8, of B [32, 8]
// the words i and 4 + i of token g, and of C [16, 8] rows g and g + 8 by tokens 2 i and 2 i + 1, as
// c[2 * (row half) + token half].
namespace reprise::cuda {

// What a thread needs of four units of one row.
template <DType kType>
struct QuadWords {
  using Words = UnitWords<kType>;
  uint4 quants[Words::kQuants];
  uint4 extra;

  // From global or shared memory; the quad's planes begin at `quant_plane` and `extra_plane`.
  __device__ void Load(const uint4* quant_plane, const uint4* extra_plane, int i) {
#pragma unroll
    for (int k = 0; k < Words::kQuants; ++k) quants[k] = quant_plane[Words::Quant(i, k)];
    if constexpr (Words::kExtras > 0) extra = extra_plane[Words::Extra(i)];
  }
  __device__ Words Unit(int j) const {
    Words words = {};
#pragma unroll
    for (int k = 0; k < Words::kQuants; ++k) words.quants[k] = Part(quants[k], j);
    if constexpr (Words::kExtras > 0) words.extra = Part(extra, j);
    return words;
  }

 private:
  __device__ static uint32_t Part(const uint4& four, int j) {
    return j == 0 ? four.x : j == 1 ? four.y : j == 2 ? four.z : four.w;
  }
};

struct Fragment {
  uint32_t a[4];
};

// Unit j of rows g and g + 8.
template <DType kType>
__device__ Fragment WeightFragment(const QuadWords<kType> (&rows)[2], const uint2* grid, int j,
                                   int i) {
  const uint2 low = WordPair<kType>(rows[0].Unit(j), grid, i);
  const uint2 high = WordPair<kType>(rows[1].Unit(j), grid, i);
  return {{low.x, high.x, low.y, high.y}};
}

__device__ inline void Mma32(int (&c)[4], const Fragment& a, const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.a[0]), "r"(a.a[1]), "r"(a.a[2]), "r"(a.a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void Mma16(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

// The scales of the four units of a quad of one row, as bytes: `sub` of its block, first or second
// half of it. Two words where units have two scales.
template <DType kType>
struct QuadScales {
  static constexpr bool kHalves = UnitTraits<kType>::kSub == SubScales::kByHalf;
  uint32_t bytes[kHalves ? 2 : 1];

  __device__ void Load(const uint8_t* sub, int half) {
    if constexpr (kType == DType::kIQ2_XXS) return;  // in the units themselves
    const auto* from = reinterpret_cast<const uint32_t*>(sub);
    if constexpr (kHalves) {
      bytes[0] = from[2 * half], bytes[1] = from[2 * half + 1];
    } else {
      bytes[0] = from[half];
    }
  }
  // Of half h (0 where units have one scale) of unit j.
  __device__ int Of(int j, int h, const QuadWords<kType>& words) const {
    if constexpr (kType == DType::kIQ2_XXS) {
      return 2 * static_cast<int>(words.Unit(j).quants[1] >> 28) + 1;
    }
    const uint32_t byte = kHalves ? bytes[j / 2] >> (16 * (j % 2) + 8 * h) : bytes[0] >> (8 * j);
    if constexpr (kType == DType::kQ2_K) return byte & 15;
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) return byte & 63;
    return static_cast<int8_t>(byte);
  }
};

// sums += scale * (unit j of 16 rows times 8 tokens), exact: 256-blocks.
template <DType kType>
__device__ void AddScaled(const Fragment& a, const uint32_t (&b)[2], const int (&scale)[2][2],
                          int (&sums)[4]) {
  int c[4] = {};
  if constexpr (UnitTraits<kType>::kSub == SubScales::kByHalf) {
    int high[4] = {};
    Mma16(c, a.a[0], a.a[1], b[0]);
    Mma16(high, a.a[2], a.a[3], b[1]);
#pragma unroll
    for (int o = 0; o < 4; ++o) sums[o] += scale[o / 2][0] * c[o] + scale[o / 2][1] * high[o];
  } else {
    Mma32(c, a, b);
#pragma unroll
    for (int o = 0; o < 4; ++o) sums[o] += scale[o / 2][0] * c[o];
  }
}

// Four sums of x as two digits, sum = 64 * high + low, each a word of int8.
struct SumDigits {
  uint32_t low = 0;
  uint32_t high = 0;

  __device__ explicit SumDigits(uint2 four) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int sum = static_cast<int16_t>((s < 2 ? four.x : four.y) >> (16 * (s % 2)));
      low |= static_cast<uint32_t>(sum & 63) << (8 * s);
      high |= static_cast<uint32_t>(sum >> 6 & 255) << (8 * s);
    }
  }
};

// c = minima of up to 16 sub-blocks of 16 values times the sums of x under them. A thread holds
// those of sub-blocks 4 i .. 4 i + 3: of rows g and g + 8, and of token g.
__device__ inline void MultiplyMinima(const uint32_t (&minima)[2], const SumDigits& sums,
                                      int (&c)[4]) {
#pragma unroll
  for (int o = 0; o < 4; ++o) c[o] = 0;
  Mma16(c, minima[0], minima[1], sums.high);
#pragma unroll
  for (int o = 0; o < 4; ++o) c[o] *= 64;
  Mma16(c, minima[0], minima[1], sums.low);
}

// Minima of sub-blocks 4 k .. 4 k + 3 of a block: `sub` as in layout.h.
template <DType kType>
__device__ uint32_t MinimaOf(const uint8_t* sub, int k) {
  const auto* words = reinterpret_cast<const uint32_t*>(sub);
  if constexpr (kType == DType::kQ2_K) return words[k] >> 4 & 0x0F0F0F0F;
  // One for two of them: bytes 2 k and 2 k + 1 of the eight.
  return __byte_perm(words[2], words[3], 0x1100 + 0x2222 * k);
}

}  // namespace reprise::cuda
