// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace reprise::grammar {

// A table that grows by rows and never moves them: growing costs the same at any size.
//
// Thread safety: none.
template <typename T>
class RowTable {
 public:
  explicit RowTable(size_t width) : width_(width) {}

  void Add(T value) {
    if (rows_ % kChunkRows == 0) {
      chunks_.push_back(std::make_unique_for_overwrite<T[]>(kChunkRows * width_));
    }
    std::fill_n((*this)[rows_++], width_, value);
  }
  T* operator[](size_t row) {
    return chunks_[row / kChunkRows].get() + (row % kChunkRows) * width_;
  }
  size_t row_bytes() const { return width_ * sizeof(T); }

 private:
  static constexpr size_t kChunkRows = 64;

  size_t width_;
  size_t rows_ = 0;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace reprise::grammar
