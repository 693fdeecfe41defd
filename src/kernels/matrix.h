// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "kernels/op_context.h"
#include "tensor/dtype.h"

namespace reprise {

struct MatrixShape {
  DType dtype = DType::kF32;
  int64_t count = 1;  // matrices of a stack
  int64_t rows = 0;
  int64_t cols = 0;
};

// Weights in the layout of the backend that made them, in one allocation: see Backend::MakeMatrix.
class PackedMatrix {
 public:
  explicit PackedMatrix(const MatrixShape& shape) : shape_(shape) {}
  virtual ~PackedMatrix() = default;

  const MatrixShape& shape() const { return shape_; }
  virtual size_t bytes() const = 0;

 private:
  const MatrixShape shape_;
};

// A weight matrix [rows, cols], or a stack of `count` such matrices (of experts, of heads), in one
// allocation. A handle: packed once at load, by the backend that multiplies with it ever after.
class Matrix {
 public:
  Matrix() = default;
  explicit Matrix(std::unique_ptr<PackedMatrix> packed) : packed_(std::move(packed)) {}

  // Packs `count` * `rows` rows, `stride` bytes apart.
  // REQUIRES: cols is a multiple of the type's block.
  static Result<Matrix> Pack(const OpContext& context, const MatrixShape& shape,
                             const std::byte* source, size_t stride);

  DType dtype() const { return packed_->shape().dtype; }
  int64_t count() const { return packed_ == nullptr ? 0 : packed_->shape().count; }
  int64_t rows() const { return packed_ == nullptr ? 0 : packed_->shape().rows; }
  int64_t cols() const { return packed_ == nullptr ? 0 : packed_->shape().cols; }
  size_t bytes() const { return packed_ == nullptr ? 0 : packed_->bytes(); }
  bool empty() const { return packed_ == nullptr; }

  const PackedMatrix* packed() const { return packed_.get(); }

 private:
  std::unique_ptr<PackedMatrix> packed_;
};

}  // namespace reprise
