// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/rows/rope.h"
#include "kernels/reference/math.h"

namespace reprise::cuda {

// One angle of AngledRows: computed, then stored.
struct Angle {
  float cos, sin;

  __device__ __forceinline__ Angle(const AngledRows& rows, int64_t index)
      : Angle(static_cast<float>(rows.positions[index / rows.angles.half]),
              rows.inverse_frequency[index % rows.angles.half], rows.magnitude) {}
  __device__ __forceinline__ Angle(float position, float inverse_frequency, float magnitude) {
    const float angle = position * inverse_frequency;
    const reference::SinCosResult result = reference::SinCos(angle);
    // A magnitude of 1 changes no bit.
    cos = static_cast<float>(result.cos) * magnitude;
    sin = static_cast<float>(result.sin) * magnitude;
  }
  __device__ __forceinline__ void Store(const AngledRows& rows, int64_t index) const {
    rows.angles.cos[index] = cos;
    rows.angles.sin[index] = sin;
  }
};

}  // namespace reprise::cuda
