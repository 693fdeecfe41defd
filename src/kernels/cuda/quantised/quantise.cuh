// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {

// Eight neighbours of a row as integers, with the bits of the CPU (QuantisedRows of
// kernels/cpu/table.h).
struct EightQuantised {
  uint32_t words[2];
  float scale;  // of the block
  int sum;      // of 32 values, in blocks of 256 of 16
};

// By whole warps: four neighbouring threads hold a block of 32, all of them one of 256.
template <int kBlock>
__device__ __forceinline__ EightQuantised QuantiseEight(const float (&value)[8]) {
  constexpr uint32_t kInfinityBits = 0x7F800000;
  constexpr uint32_t kSmallestBits = 0x0D800000;  // 2^-100
  // 1.5 * 2^23: a sum with it is rounded to an integer, ties to even, in its last bits.
  constexpr float kToInteger = 12582912.0f;
  uint32_t max_bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) max_bits = max(max_bits, __float_as_uint(value[i]) & 0x7FFFFFFF);
  if constexpr (kBlock == 256) {
    max_bits = __reduce_max_sync(kFullWarp, max_bits);
  } else {
    max_bits = max(max_bits, __shfl_xor_sync(kFullWarp, max_bits, 2));
    max_bits = max(max_bits, __shfl_xor_sync(kFullWarp, max_bits, 1));
  }
  const bool zero = max_bits < kSmallestBits || max_bits >= kInfinityBits;
  const float largest = __uint_as_float(max_bits);
  const float inverse = zero ? 0.0f : 127.0f / largest;
  EightQuantised eight = {};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    uint32_t bits[4];  // whose last byte is the integer
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[i] = __float_as_uint(__fadd_rn(__fmul_rn(value[4 * h + i], inverse), kToInteger));
    }
    const uint32_t word = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                                      __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
    eight.words[h] = zero ? 0 : word;
    eight.sum = __dp4a(static_cast<int>(eight.words[h]), 0x01010101, eight.sum);
  }
  eight.sum += __shfl_xor_sync(kFullWarp, eight.sum, 1);
  if (kBlock == 32) eight.sum += __shfl_xor_sync(kFullWarp, eight.sum, 2);
  eight.scale = max_bits >= kInfinityBits ? NAN : zero ? 0.0f : largest / 127.0f;
  return eight;
}

}  // namespace reprise::cuda
