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
// `magnitude`.
struct AngledRows {
  const int32_t* positions = nullptr;  // [rows]
  int64_t rows = 0;
  const float* inverse_frequency = nullptr;  // [angles.half]
  float magnitude = 1;
  RopeAngles angles;
};
void MakeRopeAngles(Stream stream, const AngledRows& rows);

// The same where every angle has a position of its own: `rows.positions` is [rows, angles.half],
// and may lie where the cosines will.
void MakePlacedAngles(Stream stream, const AngledRows& rows);

// Rotates, in each of `heads` heads that lie x.cols / heads channels apart, the channels
// [offset, offset + 2 * half): pairs (i, i + half). REQUIRES: offset + 2 * half <= x.cols / heads.
void Rope(Stream stream, const RopeAngles& angles, int heads, int offset, const View& x);

}  // namespace reprise::cuda
