// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

// One token of a scan with a matrix state, as reference/gpu/lane_scan.h has it. Eight threads share
// a column of the state: thread l has keys 32j + 4l .. 32j + 4l + 3.
namespace reprise::cuda {

inline constexpr int kLanes = 8;

enum class Rule { kDelta, kKeyDecay, kSsd, kWkv7 };

// Sums over the keys that threads of a column have between them.
template <int kCount>
__device__ __forceinline__ void Join(float (&sum)[kCount]) {
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) sum[c] += __shfl_xor_sync(~0u, sum[c], d);
  }
}

template <int kCells>
__device__ __forceinline__ float Chain(const float (&a)[kCells], const float (&b)[kCells]) {
  float lane[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kCells; ++i) lane[i % 4] = fmaf(a[i], b[i], lane[i % 4]);
  return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

template <int kCells>
__device__ __forceinline__ void LoadCells(float (&cells)[kCells], const float* keys, int lane) {
#pragma unroll
  for (int i = 0; i < kCells; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(keys + i * kLanes + 4 * lane);
    cells[i] = four.x, cells[i + 1] = four.y, cells[i + 2] = four.z, cells[i + 3] = four.w;
  }
}

// One token: `keys` are its operands along keys in shared memory, each `pitch` floats behind the
// last.
template <Rule kRule, int kKeys, int kColumns>
__device__ __forceinline__ void RunToken(float (&s)[kColumns][kKeys / kLanes], const float* keys,
                                         int pitch, const float (&scalar)[2],
                                         const float (&in)[kColumns], float skip, int lane,
                                         float (&out)[kColumns]) {
  constexpr int kCells = kKeys / kLanes;
  if constexpr (kRule == Rule::kDelta) {
    float k[kCells], q[kCells];
    LoadCells(k, keys, lane);
    LoadCells(q, keys + pitch, lane);
    const float decay = scalar[0], beta = scalar[1];
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) read[c] = Chain(s[c], k);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] *= decay;
    }
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float delta = beta * (in[c] - decay * read[c]);
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(k[i], delta, s[c][i]);
      out[c] = Chain(s[c], q);
    }
  } else if constexpr (kRule == Rule::kKeyDecay) {
    float k[kCells], q[kCells], decay[kCells];
    LoadCells(k, keys, lane);
    LoadCells(q, keys + pitch, lane);
    LoadCells(decay, keys + 2 * pitch, lane);
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] *= decay[i];
      read[c] = Chain(s[c], k);
    }
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float delta = scalar[0] * (in[c] - read[c]);
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(k[i], delta, s[c][i]);
      out[c] = Chain(s[c], q);
    }
  } else if constexpr (kRule == Rule::kSsd) {
    float b[kCells], c_keys[kCells];
    LoadCells(b, keys, lane);
    LoadCells(c_keys, keys + pitch, lane);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float u = scalar[0] * in[c];
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(b[i], u, s[c][i] * scalar[1]);
      out[c] = Chain(s[c], c_keys);
    }
  } else {
    float a[kCells], b[kCells], k[kCells], w[kCells], r[kCells];
    LoadCells(a, keys, lane);
    LoadCells(b, keys + pitch, lane);
    LoadCells(k, keys + 2 * pitch, lane);
    LoadCells(w, keys + 3 * pitch, lane);
    LoadCells(r, keys + 4 * pitch, lane);
    float read[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) read[c] = Chain(s[c], a);
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        s[c][i] = fmaf(s[c][i], w[i], fmaf(read[c], b[i], in[c] * k[i]));
      }
      out[c] = Chain(s[c], r);
    }
  }
  Join(out);
  if constexpr (kRule == Rule::kSsd) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[c] = fmaf(skip, in[c], out[c]);
  }
}

}  // namespace reprise::cuda
