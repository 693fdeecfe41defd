// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/matrix.h"

namespace reprise {

// A matrix, or a stack of them, of which several devices have a part each.
class SplitMatrix final : public PackedMatrix {
 public:
  // Rows [begin, end), or, of a stack that is divided by count, matrices.
  struct Part {
    int device = 0;
    int64_t begin = 0;
    int64_t end = 0;
    PackedMatrix* packed = nullptr;  // of weights
    Matrix weights;

    int64_t count() const { return end - begin; }
  };

  SplitMatrix(const MatrixShape& shape, bool by_count, std::vector<Part> parts)
      : PackedMatrix(shape), by_count_(by_count), parts_(std::move(parts)) {}

  size_t bytes() const override {
    size_t bytes = 0;
    for (const Part& part : parts_) bytes += part.weights.bytes();
    return bytes;
  }
  bool by_count() const { return by_count_; }
  const std::vector<Part>& parts() const { return parts_; }

  static const SplitMatrix& Of(const Matrix& matrix) {
    return static_cast<const SplitMatrix&>(*matrix.packed());
  }

 private:
  const bool by_count_;
  const std::vector<Part> parts_;
};

}  // namespace reprise
