// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"

// The reduction of RMS and L2 norms, with the bits of kernels/cpu/table.h: 16 lanes, each a chain.
namespace reprise::cuda {

inline constexpr int kNormLanes = 16;

// By 16 neighbouring threads of a warp, of which this one is `lane`; value(i), 0 <= i < n. A chain
// is bound by latency, so the values of the next links are asked for before they are needed.
template <typename Value>
__device__ float SumOfSquares(const Value& value, int lane, int64_t n) {
  constexpr int kAhead = 8;
  float next[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    const int64_t i = lane + j * kNormLanes;
    next[j] = i < n ? value(i) : 0.0f;
  }
  float sum = 0;
  for (int64_t first = lane; first < n; first += kAhead * kNormLanes) {
    float now[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      now[j] = next[j];
      const int64_t i = first + (kAhead + j) * kNormLanes;
      next[j] = i < n ? value(i) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kNormLanes < n) sum = fmaf(now[j], now[j], sum);
    }
  }
  return SumLanes(sum);
}

__device__ inline float InverseRoot(float mean_square, float eps) {
  return 1.0f / sqrtf(mean_square + eps);
}

}  // namespace reprise::cuda
