// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/device_ptr.h"

namespace reprise {

// Values in the memory of the backend, to be read: weights, mostly.
using ConstFloats = DevicePtr<const float>;

// Rows of activations in the memory of the backend: [rows, cols] f32, `stride` floats apart. Views,
// passed by value or const reference; only kernels/ looks at the values (kernels/raw_rows.h).
struct Rows {
  DevicePtr<float> data;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
};

// The same, to be read. A stride of 0 is one row for all.
struct ConstRows {
  DevicePtr<const float> data;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  ConstRows() = default;
  ConstRows(DevicePtr<const float> place, int64_t row_count, int64_t col_count, int64_t row_stride)
      : data(place), rows(row_count), cols(col_count), stride(row_stride) {}
  ConstRows(const Rows& x) : data(x.data), rows(x.rows), cols(x.cols), stride(x.stride) {}
};

// Columns [begin, begin + count) of every row.
inline Rows Columns(const Rows& x, int64_t begin, int64_t count) {
  return {x.data + begin, x.rows, count, x.stride};
}
inline ConstRows Columns(const ConstRows& x, int64_t begin, int64_t count) {
  return {x.data + begin, x.rows, count, x.stride};
}

}  // namespace reprise
