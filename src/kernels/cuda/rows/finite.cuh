// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {

__device__ inline bool IsFinite(float value) { return (__float_as_uint(value) << 1) < 0xFF000000; }

// Says that a sequence of the step has state, or a score, that is no finite number (StepLayout).
// Behind WaitForInputs; by whoever comes.
__device__ inline void Spoil(const StepView& step, int64_t sequence) {
  if (step.spoilt != nullptr) step.spoilt[sequence] = 1;
}
// The sequence that has the row.
__device__ inline void SpoilRow(const StepView& step, int64_t row) {
  Spoil(step, step.row_sequence[row]);
}

// Adds up what is wrong with numbers, one instruction each.
struct Finite {
  float wrong = 0;  // NaN: one was not finite

  __device__ __forceinline__ void Look(float value) { wrong = fmaf(value, 0.0f, wrong); }
  __device__ __forceinline__ bool all() const { return wrong == 0; }
};

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
