// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows.h"

namespace reprise {

// A bit for each device.
using DeviceSet = uint64_t;

// Which devices have which values of rows that have an address on each of them
// (kernels/split/split_memory.h). What was never spoken of is everywhere.
//
// Rows are known as they were written: columns of an array, `stride` apart. Memory that is used
// anew, in another form, is forgotten as what it was.
//
// Thread safety: none.
// Invariants: areas do not overlap; none of them is everywhere.
class Whereabouts {
 public:
  explicit Whereabouts(int devices)
      : all_(devices == 64 ? ~DeviceSet{0} : (DeviceSet{1} << devices) - 1) {}

  DeviceSet all() const { return all_; }

  // The values are on these devices from now on, and on no others.
  void Set(const ConstRows& x, DeviceSet where);

  // A part of some rows, in their own numbers, that is not everywhere.
  struct Part {
    int64_t row_begin = 0, row_end = 0;
    int64_t col_begin = 0, col_end = 0;
    DeviceSet where = 0;
  };
  std::vector<Part> PartsOf(const ConstRows& x) const;

  // What is not everywhere, lies in these bytes, and is no part of `x` as its rows are; with no
  // rows, all of it.
  std::vector<ConstRows> Strangers(const void* begin, size_t bytes, const ConstRows& x) const;
  // Nobody will read again what lies wholly in these bytes.
  void Forget(const void* begin, size_t bytes);

 private:
  struct Area {
    const float* at = nullptr;
    int64_t rows = 0, cols = 0, stride = 0;
    DeviceSet where = 0;

    const float* end() const { return at + (rows - 1) * stride + cols; }
  };
  // Where an area stands among rows of x, in one piece or two; none: they do not lie in one frame.
  struct Placed {
    int64_t row = 0, col = 0;
    int64_t rows = 0, cols = 0;
  };
  static int Align(const Area& area, const Area& x, Placed (&placed)[2]);
  static void KeepAround(const Area& area, const Placed& piece, const Area& set,
                         std::vector<Area>* kept);
  void Add(Area area);

  const DeviceSet all_;
  std::vector<Area> areas_;
};

}  // namespace reprise
