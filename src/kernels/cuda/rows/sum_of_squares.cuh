// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"

// The reduction of RMS and L2 norms, with the bits of kernels/cpu/table.h: 16 lanes, each a chain.
namespace reprise::cuda {

inline constexpr int kNormLanes = 16;

// By 16 neighbouring threads of a warp, of which this one is `lane`; value(i), 0 <= i < n. A chain
// is bound by latency, so values come in batches, each asked for while the one before it is summed.
template <typename Value>
__device__ float SumOfSquares(const Value& value, int lane, int64_t n) {
  constexpr int kBatch = 8;
  constexpr int kStep = kBatch * kNormLanes;
  const int count = static_cast<int>(n);
  const int whole = count / kStep * kStep;
  float sum = 0;
  int first = lane;
  if (whole > 0) {
    float next[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) next[j] = value(first + j * kNormLanes);
    for (first += kStep; first < whole; first += kStep) {
      float now[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        now[j] = next[j];
        next[j] = value(first + j * kNormLanes);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) sum = fmaf(now[j], now[j], sum);
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) sum = fmaf(next[j], next[j], sum);
  }
#pragma unroll 1
  for (; first < count; first += kNormLanes) {
    const float one = value(first);
    sum = fmaf(one, one, sum);
  }
  return SumLanes(sum);
}

__device__ inline float InverseRoot(float mean_square, float eps) {
  return 1.0f / sqrtf(mean_square + eps);
}

}  // namespace reprise::cuda
