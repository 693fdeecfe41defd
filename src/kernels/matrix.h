// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "device/buffer.h"
#include "kernels/cpu/table.h"
#include "kernels/op_context.h"
#include "tensor/dtype.h"

namespace reprise {

// A weight matrix [rows, cols] in the layout of the kernel that multiplies with it: packed once at
// load, by the table of the context, and run by that table's kernel ever after. Immutable.
class Matrix {
 public:
  Matrix() = default;

  // Packs `rows` rows of `dtype`, `stride` bytes apart, on all threads.
  // REQUIRES: cols is a multiple of the type's block.
  static Result<Matrix> Pack(const OpContext& context, DType dtype, int64_t rows, int64_t cols,
                             const std::byte* source, size_t stride);

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t bytes() const { return packed_.size(); }
  bool empty() const { return rows_ == 0; }
  size_t group_bytes() const { return group_bytes_; }
  int64_t group_count() const { return group_count_; }
  const std::byte* group(int64_t index) const {
    return packed_.data() + size_t(index) * group_bytes_;
  }

  const cpu::MatrixKernel& kernel() const { return kernel_; }

  // The values of one row, as stored.
  void UnpackRow(int64_t row, float* out) const;

 private:
  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  cpu::MatrixKernel kernel_ = {};
  size_t group_bytes_ = 0;
  int64_t group_count_ = 0;
  Buffer packed_;
};

}  // namespace reprise
