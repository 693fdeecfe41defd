// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "tensor/dtype.h"

namespace reprise {

// The extents of a tensor, outermost first (row-major, as PyTorch lists them). A matrix of a linear
// layer is [out, in]; its rows are contiguous. Rank 0 is a scalar: one element.
//
// Invariant: the number of elements fits int64_t, so products of extents never overflow.
class Shape {
 public:
  static constexpr int kRankMax = 8;

  Shape() = default;
  // REQUIRES: at most kRankMax extents, none negative, a product that fits.
  Shape(std::initializer_list<int64_t> extents);  // NOLINT
  // The same for extents from a file: nothing if a requirement is not met.
  static std::optional<Shape> FromUntrusted(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[axis]; }
  int64_t elements() const { return elements_; }
  // As a matrix: cols is the last extent, rows the product of the others (1 if there are none).
  int64_t cols() const { return rank_ == 0 ? 1 : extents_[rank_ - 1]; }
  int64_t rows() const;

  bool operator==(const Shape& other) const;
  std::string ToString() const;  // "[64, 128]"

 private:
  bool Assign(std::span<const int64_t> extents);

  int rank_ = 0;
  int64_t elements_ = 1;
  int64_t extents_[kRankMax] = {};
};

// Bytes of a tensor, or nothing if its rows are not whole blocks or the size does not fit size_t.
std::optional<size_t> TensorBytes(DType dtype, const Shape& shape);

}  // namespace reprise
