// SPDX-License-Identifier: Apache-2.0
#include "tensor/shape.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

Shape::Shape(std::initializer_list<int64_t> extents) {
  CHECK(Assign({extents.begin(), extents.size()}));
}

std::optional<Shape> Shape::FromUntrusted(std::span<const int64_t> extents) {
  Shape shape;
  if (!shape.Assign(extents)) return std::nullopt;
  return shape;
}

bool Shape::Assign(std::span<const int64_t> extents) {
  if (extents.size() > kRankMax) return false;
  bool empty = false;
  int64_t product = 1;  // of the extents that are not 0: rows() must fit, too
  for (const int64_t extent : extents) {
    if (extent < 0) return false;
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, extent, &product)) {
      return false;
    }
  }
  std::copy(extents.begin(), extents.end(), extents_);
  rank_ = static_cast<int>(extents.size());
  elements_ = empty ? 0 : product;
  return true;
}

int64_t Shape::rows() const {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < rank_; ++axis) rows *= extents_[axis];
  return rows;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(extents_, extents_ + rank_, other.extents_);
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(extents_[axis]);
  }
  return text + "]";
}

std::optional<size_t> TensorBytes(DType dtype, const Shape& shape) {
  const DTypeTraits& traits = TraitsOf(dtype);
  if (shape.cols() % traits.block_elements != 0) return std::nullopt;
  const size_t blocks = static_cast<size_t>(shape.elements() / traits.block_elements);
  size_t bytes = 0;
  if (__builtin_mul_overflow(blocks, static_cast<size_t>(traits.block_bytes), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace reprise
