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
  uint32_t max_bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) max_bits = max(max_bits, __float_as_uint(value[i]) & 0x7FFFFFFF);
#pragma unroll
  for (int half = kBlock / 16; half > 0; half /= 2) {
    max_bits = max(max_bits, __shfl_xor_sync(kFullWarp, max_bits, half));
  }
  const bool zero = max_bits < kSmallestBits || max_bits >= kInfinityBits;
  const float largest = __uint_as_float(max_bits);
  const float inverse = zero ? 0.0f : 127.0f / largest;
  EightQuantised eight = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int q = zero ? 0 : __float2int_rn(value[i] * inverse);
    eight.sum += q;
    eight.words[i / 4] |= (q & 0xFFu) << (8 * (i % 4));
  }
  eight.sum += __shfl_xor_sync(kFullWarp, eight.sum, 1);
  if (kBlock == 32) eight.sum += __shfl_xor_sync(kFullWarp, eight.sum, 2);
  eight.scale = max_bits >= kInfinityBits ? NAN : zero ? 0.0f : largest / 127.0f;
  return eight;
}

}  // namespace reprise::cuda
