// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

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

// Shared memory by its address there: a pointer would be made anew from time to time.
__device__ __forceinline__ float LoadShared(uint32_t at) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at));
  return value;
}
template <int kCells>
__device__ __forceinline__ void LoadCells(float (&cells)[kCells], uint32_t at) {
#pragma unroll
  for (int i = 0; i < kCells; i += 4) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(cells[i]), "=f"(cells[i + 1]), "=f"(cells[i + 2]), "=f"(cells[i + 3])
                 : "r"(at + i * kLanes * 4));
  }
}

// Operands along keys that a rule has, in this order.
template <Rule kRule>
inline constexpr int kAlongKeys = kRule == Rule::kKeyDecay ? 3  // k q decay
                                  : kRule == Rule::kWkv7   ? 5  // a b k w r
                                                           : 2;   // k q; b c of Ssd
template <Rule kRule>
inline constexpr int kScalars = kRule == Rule::kKeyDecay ? 1  // beta
                                : kRule == Rule::kWkv7   ? 0
                                                         : 2;  // decay beta; dt decay of Ssd

// A token's operands as a thread has them.
template <Rule kRule, int kKeys, int kColumns>
struct Token {
  float along[kAlongKeys<kRule>][kKeys / kLanes];
  float scalar[2];
  float in[kColumns];

  // keys: address of this thread's first operand in shared memory; the next is `pitch` floats on.
  __device__ __forceinline__ void LoadKeys(uint32_t keys, int pitch) {
#pragma unroll
    for (int o = 0; o < kAlongKeys<kRule>; ++o) LoadCells(along[o], keys + o * pitch * 4);
  }
};

// The operand along keys that an output is read with.
template <Rule kRule>
inline constexpr int kReader = kRule == Rule::kWkv7 ? 4 : 1;

// What this thread has of the outputs of the token that has just been run.
template <Rule kRule, int kKeys, int kColumns>
__device__ __forceinline__ void ReadOut(const float (&s)[kColumns][kKeys / kLanes],
                                        const Token<kRule, kKeys, kColumns>& token,
                                        float (&out)[kColumns]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) out[c] = Chain(s[c], token.along[kReader<kRule>]);
}

// One token. Threads wait for each other once: to join what they read from the state, and `last`,
// with which the caller may do the same for an output. `meanwhile()` is called while the state is
// still that of the token before; there is time for it.
template <Rule kRule, int kKeys, int kColumns, typename Meanwhile>
__device__ __forceinline__ void RunToken(float (&s)[kColumns][kKeys / kLanes],
                                         const Token<kRule, kKeys, kColumns>& token,
                                         float (&last)[kColumns], const Meanwhile& meanwhile) {
  constexpr int kCells = kKeys / kLanes;
  const auto& first = token.along[0];
  const auto& second = token.along[1];
  const auto& in = token.in;
  if constexpr (kRule == Rule::kSsd) {
    meanwhile();
    Join(last);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float u = token.scalar[0] * in[c];
#pragma unroll
      for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(first[i], u, s[c][i] * token.scalar[1]);
    }
  } else {
    if constexpr (kRule == Rule::kKeyDecay) {
      meanwhile();
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kCells; ++i) s[c][i] *= token.along[2][i];
      }
    }
    float read[2 * kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      read[c] = Chain(s[c], first);
      read[kColumns + c] = last[c];
    }
    if constexpr (kRule != Rule::kKeyDecay) meanwhile();
    if constexpr (kRule == Rule::kDelta) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int i = 0; i < kCells; ++i) s[c][i] *= token.scalar[0];
      }
    }
    Join(read);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      last[c] = read[kColumns + c];
      if constexpr (kRule == Rule::kWkv7) {
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          s[c][i] =
              fmaf(s[c][i], token.along[3][i], fmaf(read[c], second[i], in[c] * token.along[2][i]));
        }
      } else {
        const float delta = kRule == Rule::kDelta
                                ? token.scalar[1] * (in[c] - token.scalar[0] * read[c])
                                : token.scalar[0] * (in[c] - read[c]);
#pragma unroll
        for (int i = 0; i < kCells; ++i) s[c][i] = fmaf(first[i], delta, s[c][i]);
      }
    }
  }
}

}  // namespace reprise::cuda
