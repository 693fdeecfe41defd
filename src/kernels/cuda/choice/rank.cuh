// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {

// A logit and its token as one number that falls along the order; 0 is behind all. -0 counts as +0.
__device__ inline uint64_t Rank(float logit, uint32_t token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  const uint32_t ordered = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return uint64_t{ordered} << 32 | ~token;
}

__device__ inline uint32_t TokenOf(uint64_t rank) { return ~static_cast<uint32_t>(rank); }

__device__ inline float LogitOf(uint64_t rank) {
  const uint32_t ordered = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float((ordered & 0x80000000) != 0 ? ordered ^ 0x80000000 : ~ordered);
}

__device__ inline uint64_t MaxOfWarp(uint64_t rank) {
  const uint32_t high = static_cast<uint32_t>(rank >> 32), low = static_cast<uint32_t>(rank);
  const uint32_t most = __reduce_max_sync(kFullWarp, high);
  return uint64_t{most} << 32 | __reduce_max_sync(kFullWarp, high == most ? low : 0);
}

__device__ inline uint64_t OrOfWarp(uint64_t bits) {
  const uint32_t high = __reduce_or_sync(kFullWarp, static_cast<uint32_t>(bits >> 32));
  return uint64_t{high} << 32 | __reduce_or_sync(kFullWarp, static_cast<uint32_t>(bits));
}

}  // namespace reprise::cuda
