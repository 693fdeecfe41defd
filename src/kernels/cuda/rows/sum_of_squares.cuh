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

__device__ __forceinline__ float4 LoadFour(const float* from) {
  float4 four;  // not moved behind the wait
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "l"(from)
               : "memory");
  return four;
}
__device__ __forceinline__ float4 Normed(const float4& x, float r, const float4& weight) {
  return make_float4((x.x * r) * weight.x, (x.y * r) * weight.y, (x.z * r) * weight.z,
                     (x.w * r) * weight.w);
}

// The same for a row in shared memory whose columns are a multiple of 16. It lies lane by lane, so
// that a thread reads four links of its chain at once: one at a time, reads take longer than sums.
class LaneRow {
 public:
  static __host__ __device__ constexpr int Floats(int cols) { return kNormLanes * Pitch(cols); }

  __device__ LaneRow(float* memory, int cols) : memory_(memory), cols_(cols) {}

  // Where a column lies; those of its lane follow it.
  __device__ __forceinline__ float* At(int column) const {
    const auto from_first = static_cast<unsigned>(column);
    return memory_ + from_first % kNormLanes * Pitch(cols_) + from_first / kNormLanes;
  }
  // Columns [column, column + 4). REQUIRES: column is a multiple of four.
  __device__ __forceinline__ void Store(int column, const float4& four) const {
    float* to = At(column);
    to[0] = four.x;
    to[Pitch(cols_)] = four.y;
    to[2 * Pitch(cols_)] = four.z;
    to[3 * Pitch(cols_)] = four.w;
  }
  // 1 / the root of the mean square. The whole block calls, behind its stores; when this returns,
  // all have read. One warp sums: several would wait for each other's reads.
  __device__ __forceinline__ float NormFactor(int thread, float eps) const {
    __shared__ float factor;
    __syncthreads();
    if (thread < 32) {
      const float sum = SumOfSquares();
      if (thread == 0) factor = InverseRoot(sum / static_cast<float>(cols_), eps);
    }
    __syncthreads();
    return factor;
  }

 private:
  __device__ __forceinline__ float SumOfSquares() const {
    const int links = cols_ / kNormLanes;
    const float* mine = memory_ + threadIdx.x % kNormLanes * Pitch(cols_);
    // Read in batches, each while the one before it is summed.
    constexpr int kBatch = 2;
    const int whole = links / (4 * kBatch) * (4 * kBatch);
    float4 next[kBatch] = {};
    const auto read = [&](int from) {
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        next[j] = *reinterpret_cast<const float4*>(mine + from + 4 * j);
      }
    };
    float sum = 0;
    const auto add = [&](const float4& four) {
      sum = fmaf(four.x, four.x, sum);
      sum = fmaf(four.y, four.y, sum);
      sum = fmaf(four.z, four.z, sum);
      sum = fmaf(four.w, four.w, sum);
    };
    int i = 0;
    if (whole > 0) read(0);
#pragma unroll 2
    while (i < whole) {
      float4 now[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) now[j] = next[j];
      i += 4 * kBatch;
      read(i < whole ? i : 0);
#pragma unroll
      for (int j = 0; j < kBatch; ++j) add(now[j]);
    }
#pragma unroll 1
    for (; i + 4 <= links; i += 4) add(*reinterpret_cast<const float4*>(mine + i));
#pragma unroll 1
    for (; i < links; ++i) sum = fmaf(mine[i], mine[i], sum);
    return SumLanes(sum);
  }

  // From one lane to the next: odd multiples of 16 bytes, so that eight lanes meet all banks.
  static __host__ __device__ constexpr int Pitch(int cols) {
    const int pieces = (cols / kNormLanes + 3) / 4;
    return (pieces / 2 * 2 + 1) * 4;
  }

  float* memory_;
  int cols_;
};

}  // namespace reprise::cuda
