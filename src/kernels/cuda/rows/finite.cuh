// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {

__device__ inline bool IsFinite(float value) { return (__float_as_uint(value) << 1) < 0xFF000000; }

// Whether every value of rows [begin, begin + count) is a finite number; the same in every thread.
// The whole block calls.
__device__ inline bool AreFinite(const View& x, int64_t begin, int64_t count) {
  bool finite = true;
  for (int64_t r = 0; r < count; ++r) {
    const float* row = x.data + (begin + r) * x.stride;
    for (int64_t i = threadIdx.x; i < x.cols; i += blockDim.x) finite &= IsFinite(row[i]);
  }
  return __syncthreads_and(finite) != 0;
}

}  // namespace reprise::cuda
