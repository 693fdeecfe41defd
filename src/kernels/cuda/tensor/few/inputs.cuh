// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/few/call.cuh"
#include "kernels/cuda/tensor/mma.cuh"

// The rows that products of few rows read, rounded to f16 by every block on the way, normed before
// that where there is a norm.
namespace reprise::cuda::few {

// A row behind a norm, and the norm's weights.
inline int64_t NormedRowBytes(int64_t cols) { return (LaneRow::Floats(int(cols)) + cols) * 4; }

constexpr int InputPitch(int64_t cols) { return static_cast<int>((cols + 63) / 64 * 64 + 16); }

constexpr int kHold = 5;  // groups of four values that a thread asks for at once, at most

__device__ __forceinline__ float Largest(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

__device__ __forceinline__ void StoreRounded(uint16_t* to, float4 x, float inverse) {
  *reinterpret_cast<uint2*>(to) = make_uint2(Pack2<Half::kF16>(x.x * inverse, x.y * inverse),
                                             Pack2<Half::kF16>(x.z * inverse, x.w * inverse));
}

// Rows of a block's inputs in shared memory: rounded [rows, pitch]; where there is a norm, one
// after another as floats before that.
struct Inputs {
  uint16_t* rounded;
  float* floats;
  float* scale;  // [kFloatRows]
  int pitch;
};

// A row as it comes into the products: read, and normed where there is a norm.
struct InputRow {
  const float* x;
  const float* weight;  // of the norm, or null
  float inverse_root;
  float* h;  // where the normed row goes, or null

  __device__ __forceinline__ float4 At(int i) const {
    float4 four = *reinterpret_cast<const float4*>(x + i);
    if (weight != nullptr) {
      const float4 w = *reinterpret_cast<const float4*>(weight + i);
      four = make_float4((four.x * inverse_root) * w.x, (four.y * inverse_root) * w.y,
                         (four.z * inverse_root) * w.z, (four.w * inverse_root) * w.w);
      if (h != nullptr) *reinterpret_cast<float4*>(h + i) = four;
    }
    return four;
  }
};

// A row of f16 that has to be scaled; the whole block calls. Rare, so it may take its time.
inline __device__ __noinline__ void RoundScaled(InputRow row, int cols, uint16_t* rounded,
                                                float* scale) {
  float largest = 0;
  for (int i = 0; i < cols; i += 4) largest = fmaxf(largest, Largest(row.At(i)));
  const float mine = RowScale(largest);
  for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
    StoreRounded(rounded + i, row.At(i), 1 / mine);
  }
  *scale = mine;
}

// One row behind a norm whose weights are in shared memory, too: in at most kGroups groups.
// Everything is asked for once. The normed row takes the place of the weights.
// kBehind: copies asked for since the weights of the norm.
template <int kGroups, int kBehind = kStages>
__device__ __forceinline__ void ReadNormed(const Call& call, const Inputs& inputs, float* weights) {
  const int cols = static_cast<int>(call.x.cols);
  const LaneRow lanes(inputs.floats, cols);
  float4 held[kGroups];
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i < cols) held[j] = *reinterpret_cast<const float4*>(call.x.f32 + i);
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i < cols) lanes.Store(i, held[j]);
  }
  WaitAsync<kBehind>();
  const float r = lanes.NormFactor(static_cast<int>(threadIdx.x),
                                   call.norm.eps);  // from here on rounded values take its place
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int i = 4 * (threadIdx.x + j * blockDim.x);
    if (i >= cols) break;
    const float4 w = *reinterpret_cast<const float4*>(weights + i);
    const float4 four = make_float4((held[j].x * r) * w.x, (held[j].y * r) * w.y,
                                    (held[j].z * r) * w.z, (held[j].w * r) * w.w);
    if (blockIdx.x == 0) *reinterpret_cast<float4*>(call.norm.h.data + i) = four;
    largest = fmaxf(largest, Largest(four));
    StoreRounded(inputs.rounded + i, four, 1.0f);
    *reinterpret_cast<float4*>(weights + i) = four;
  }
  const bool large = largest >= 65520.0f;
  if (__syncthreads_or(large) != 0) {
    RoundScaled({call.x.f32, call.norm.weight, r, nullptr}, cols, inputs.rounded, inputs.scale);
    __syncthreads();
  }
}

// Rows are rounded as if none had to be scaled; those that have are rounded again.
__device__ __forceinline__ void ReadInputs(const Call& call, const Tile& tile,
                                           const Inputs& inputs) {
  const int rows = static_cast<int>(tile.end - tile.begin);
  const int cols = static_cast<int>(call.x.cols);
  const bool norm = call.norm.weight != nullptr;
  if (threadIdx.x < kFloatRows) inputs.scale[threadIdx.x] = 1.0f;
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    const float* from = call.x.f32 + SourceRow(call.groups, tile.begin + r) * call.x.stride;
    InputRow row = {from, call.norm.weight, 1.0f, nullptr};
    if (norm) {
#pragma unroll 4
      for (int i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
        *reinterpret_cast<float4*>(inputs.floats + i) = *reinterpret_cast<const float4*>(from + i);
      }
      __syncthreads();
      const float sum =
          SumOfSquares([&](int64_t i) { return inputs.floats[i]; }, threadIdx.x % kNormLanes, cols);
      row.x = inputs.floats;
      row.inverse_root = InverseRoot(sum / static_cast<float>(cols), call.norm.eps);
      if (blockIdx.x == 0) row.h = call.norm.h.data + (tile.begin + r) * call.norm.h.stride;
    }
    uint16_t* rounded = inputs.rounded + r * inputs.pitch;
    float largest = 0;
#pragma unroll 1
    for (int first = 4 * threadIdx.x; first < cols; first += 4 * kHold * blockDim.x) {
      float4 held[kHold];
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        const int i = first + 4 * j * blockDim.x;
        if (i < cols) held[j] = row.At(i);
      }
#pragma unroll
      for (int j = 0; j < kHold; ++j) {
        const int i = first + 4 * j * blockDim.x;
        if (i >= cols) break;
        largest = fmaxf(largest, Largest(held[j]));
        StoreRounded(rounded + i, held[j], 1.0f);
      }
    }
    const bool large = largest >= 65520.0f;
    if (__syncthreads_or(large) != 0) {
      RoundScaled(row, cols, rounded, inputs.scale + r);
      __syncthreads();
    }
  }
}

}  // namespace reprise::cuda::few
