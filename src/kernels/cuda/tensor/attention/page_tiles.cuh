// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/tensor/attention/attention.cuh"
#include "kernels/cuda/tensor/attention/kv_q8.cuh"
#include "kernels/cuda/tensor/tensor_map.h"

// Keys or values of a page in shared memory as the copy engine leaves them: tiles of 64 positions x
// 64 channels, rows of 128 bytes, swizzled by 128 bytes.
namespace reprise::cuda {

inline constexpr int kTileValues = 64 * 64;

// The place of 8 values, chunk `chunk` of a row.
__device__ __forceinline__ uint16_t* PlaceOf(uint16_t* tiles, int row, int chunk) {
  return tiles + chunk / 8 * kTileValues + row * 64 + ((chunk % 8) ^ (row % 8)) * 8;
}

// Widens a page of q8_0 that lies in shared memory (`staged`) by `threads` threads: kWidth
// channels, zeros from `width` on and in rows from `rows` on.
template <int kWidth>
__device__ __forceinline__ void WidenPage(uint16_t* tiles, const std::byte* staged, int width,
                                          int rows, int thread, int threads) {
  constexpr int kChunks = kWidth / 16;
#pragma unroll 1
  for (int i = thread; i < kKeys * kChunks; i += threads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const CodesOf16 read = row < rows ? ReadCodes(staged, width, row, 16 * chunk) : CodesOf16{};
    Widen(read, [&](int half, uint4 eight) {
      *reinterpret_cast<uint4*>(PlaceOf(tiles, row, 2 * chunk + half)) = eight;
    });
  }
}

// What the copy engine reads: K and V of 16 bits.
struct PageMaps {
  CUtensorMap keys;
  CUtensorMap values;
};
inline PageMaps MapsOf(const AttentionCall& call) {
  const KvView& kv = call.kv;
  const int64_t rows = int64_t{kv.kv_heads} * kKeys;
  const std::byte* blocks = call.step.block_memory;
  return {MakePageMap(blocks + kv.k_offset, call.step.block_bytes, rows, kv.head_dim),
          MakePageMap(blocks + kv.v_offset, call.step.block_bytes, rows, kv.value_dim)};
}

}  // namespace reprise::cuda
