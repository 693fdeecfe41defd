// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/rows/rope.h"
#include "kernels/reference/math.h"

namespace reprise::cuda {

// One angle of AngledRows: computed, then stored.
struct Angle {
  float cos, sin;

  __device__ __forceinline__ Angle(const AngledRows& rows, int64_t index) {
    const float position = static_cast<float>(rows.positions[index / rows.angles.half]);
    const float angle = position * rows.inverse_frequency[index % rows.angles.half];
    const reference::SinCosResult result = reference::SinCos(angle);
    // A magnitude of 1 changes no bit.
    cos = static_cast<float>(result.cos) * rows.magnitude;
    sin = static_cast<float>(result.sin) * rows.magnitude;
  }
  __device__ __forceinline__ void Store(const AngledRows& rows, int64_t index) const {
    rows.angles.cos[index] = cos;
    rows.angles.sin[index] = sin;
  }
};

}  // namespace reprise::cuda
