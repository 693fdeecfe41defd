// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/view.h"

// Rotary embedding with the bits of the CPU (SinCos of kernels/reference/math.h, in double).
namespace reprise::cuda {

// Angles of the rows of a step: computed once, used by every layer.
struct RopeAngles {
  float* cos = nullptr;  // [rows, half]
  float* sin = nullptr;  // [rows, half]
  int half = 0;
};

// cos and sin of float(position) * inverse_frequency[f], rounded to f32 before and after, times
// `magnitude`. positions: [rows]; inverse_frequency: [angles.half].
void MakeRopeAngles(Stream stream, const int32_t* positions, int64_t rows,
                    const float* inverse_frequency, float magnitude, const RopeAngles& angles);

// Rotates, in each of `heads` heads that lie x.cols / heads channels apart, the channels
// [offset, offset + 2 * half): pairs (i, i + half). REQUIRES: offset + 2 * half <= x.cols / heads.
void Rope(Stream stream, const RopeAngles& angles, int heads, int offset, const View& x);

}  // namespace reprise::cuda
