// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/packed/packed.h"
#include "kernels/cuda/view.h"
#include "kernels/reference/gpu/tensor_core.h"

// Products with 16-bit weights on tensor cores: F16 as in files, BF16 as
// reference/gpu/bf16_weights.h has it. The bits are those of reference::TensorProduct, whatever the
// number of rows: one form for few rows (slices of K spread over warps, weights read once), one for
// many (tiles).
namespace reprise::cuda {

using reference::Half;

// Where blocks of one launch leave sums for each other (packed/many.cuh). Zeros before it is used,
// by one stream.
struct HandedSums {
  static constexpr int kWarps = 8, kFloats = 128 * 160;  // of a block

  float* sums = nullptr;      // [multiprocessors, kFloats]; null: they do not
  uint32_t* hands = nullptr;  // [multiprocessors, kWarps]
};

// Activations in 16 bit, as reference::RoundRow makes them; or, where rows are few, as they are, to
// be rounded by every block on the way (RoundedOnTheWay).
struct HalfRows {
  uint16_t* data = nullptr;  // [rows, stride], zeros from cols on
  float* scale = nullptr;    // [rows]
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;          // a multiple of 16
  const float* f32 = nullptr;  // [rows, stride]: not rounded yet; data and scale are null
  HandedSums handed = {};
};
// REQUIRES: MayRoundOnTheWay(x) (product_few.h).
HalfRows RoundedOnTheWay(const View& x);

// Weights [rows, cols] in f16, `stride` elements apart: a multiple of 16, zeros from cols on. Rows
// start at multiples of 32 bytes. They stand for themselves times a power of two.
// Or packed (packed.h): data are its bytes, stride the columns with those that fill up the last
// units, a multiple of 128, and the scale is 1.
struct HalfMatrix {
  const uint16_t* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  float scale = 1;
  PackedForm packed = PackedForm::kNone;
};

// Rows of x that belong to one of several matrices: those of expert e are [begin[e], begin[e + 1]).
// Matrix e lies e * matrix_stride elements behind the first. Arrays are device memory.
struct HalfGroups {
  const int32_t* begin = nullptr;  // [count + 1]
  const int32_t* row = nullptr;    // [rows] row of x of a slot, or null: the slot itself
  int count = 0;
  int64_t matrix_stride = 0;
  const float* scale = nullptr;  // [count] of each matrix, or null: that of the HalfMatrix
};

// out[t][r] = x[t] . weight[r] (+ bias[r]).
struct HalfProduct {
  HalfMatrix weight;
  const float* bias = nullptr;  // [weight rows] or null
  View out;
};
// Several products of one input, in one launch where rows are few.
void Products(Stream stream, const HalfRows& x, std::span<const HalfProduct> products);
// The same for groups of rows, each with its own matrix; rows of out are slots, at least
// begin[count]. The bias is one for all.
void ProductGroups(Stream stream, const HalfRows& x, const HalfMatrix& weight,
                   const HalfGroups& groups, const float* bias, const View& out);

}  // namespace reprise::cuda
