// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/architecture.h"
#include "kernels/cuda/tensor/few/small.cuh"
#include "kernels/cuda/tensor/few/small.h"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kAtOnce = 2;  // rows of a piece that are asked for at once

// Where 16 bytes of a row of a piece lie: eight rows of one column meet all banks.
__device__ __forceinline__ int Place(int row, int column) {
  return row * kTensorSlice + (column ^ row % 8) * 8;
}

// Rows of 16-bit weights.
template <int kRows>
struct HalfPieces {
  static constexpr bool kMixed = false;
  static constexpr int kTile = kRows;
  static constexpr int kBytes = kTile * kTensorSlice * 2;

  static __device__ __forceinline__ void Ask(std::byte* to, const small::Part& part, int tile,
                                             int slice, int stride) {
    auto* piece = reinterpret_cast<uint16_t*>(to);
    const int lane = static_cast<int>(threadIdx.x);
    const int rows = part.rows - tile * kTile;
    const uint16_t* from = static_cast<const uint16_t*>(part.weight) + tile * kTile * stride +
                           slice * kTensorSlice + lane * 8;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        CopyAsync16(piece + Place(r, 32 * half + lane), from + 256 * half, r < rows);
      }
      from += stride;
      // Not all at once: behind so much, what the kernel in front still writes would have to wait.
      if (r % kAtOnce == kAtOnce - 1 && r + 1 < kTile) {
        CommitAsync();
        if (r >= kAtOnce) WaitAsync<1>();
      }
    }
  }

  // The sums go to `sums`. x: the slice of the row.
  static __device__ __forceinline__ void Multiply(const std::byte* from, const small::Part&,
                                                  const uint32_t* x, float* sums) {
    const auto* piece = reinterpret_cast<const uint16_t*>(from);
    const int lane = static_cast<int>(threadIdx.x);
    const auto* mine = reinterpret_cast<const uint4*>(x) + lane % 4;
    float acc[4] = {0, 0, 0, 0};
    if constexpr (kTile == 8) {
      // The row on the left: of 16 rows there is one, the others are sums of something.
      const uint16_t* even = piece + Place(lane % 8, lane / 8);
      const uint16_t* odd = piece + Place(lane % 8, 4 + lane / 8);
#pragma unroll
      for (int s = 0; s < kTensorSlice / 32; ++s) {
        uint32_t b[4];
        LoadMatrix4(b, (s % 2 == 0 ? even : odd) + s / 2 * 64);
        const uint4 a = mine[4 * s];
        Mma<Half::kF16>(acc, {a.x, 0, a.y, 0}, b[0], b[1]);
        Mma<Half::kF16>(acc, {a.z, 0, a.w, 0}, b[2], b[3]);
      }
      if (lane < 4) reinterpret_cast<float2*>(sums)[lane] = make_float2(acc[0], acc[1]);
    } else {
      // The weights on the left: of eight columns on the right one is read.
      const uint16_t* of[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) of[i] = piece + Place(lane % 16, 2 * i + lane / 16);
#pragma unroll
      for (int s = 0; s < kTensorSlice / 32; ++s) {
        const uint4 b = mine[4 * s];
        uint32_t a[4];
        LoadMatrix4(a, of[2 * s % 4] + s / 2 * 64);
        Mma<Half::kF16>(acc, a, b.x, b.y);
        LoadMatrix4(a, of[(2 * s + 1) % 4] + s / 2 * 64);
        Mma<Half::kF16>(acc, a, b.z, b.w);
      }
      if (lane % 4 == 0) {
        sums[lane / 4] = acc[0];
        sums[8 + lane / 4] = acc[2];
      }
    }
  }
};

}  // namespace

bool RunSmallProducts(Stream stream, const FewProducts& few) {
  if (!ThisGpu().early_launch) return false;
  return small::RunPieces<HalfPieces<8>, HalfPieces<16>>(stream, few, [](small::Call&) {});
}

}  // namespace reprise::cuda
