// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/buffer.h"
#include "kernels/cpu/table.h"
#include "kernels/matrix.h"

namespace reprise::cpu {

// One matrix of a stack as its kernel reads it: groups of rows, one after another.
struct PackedSlice {
  const MatrixKernel* kernel = nullptr;
  const std::byte* groups = nullptr;
  size_t group_bytes = 0;
  int64_t group_count = 0;
  int64_t rows = 0;
  int64_t cols = 0;

  const std::byte* group(int64_t index) const { return groups + size_t(index) * group_bytes; }
};

// Packed by the table of the backend that made it, and run by that table's kernel on whatever
// threads. Immutable once it is packed.
class CpuMatrix final : public PackedMatrix {
 public:
  static Result<std::unique_ptr<PackedMatrix>> Make(const MatrixShape& shape,
                                                    const MatrixKernel& kernel);

  size_t bytes() const override { return packed_.size(); }
  PackedSlice slice(int64_t index) const {
    const size_t at = size_t(index * group_count_) * group_bytes_;
    return {&kernel_, packed_.data() + at, group_bytes_, group_count_, shape().rows, shape().cols};
  }
  std::byte* group(int64_t index, int64_t group) {
    return packed_.data() + size_t(index * group_count_ + group) * group_bytes_;
  }

 private:
  CpuMatrix(const MatrixShape& shape, const MatrixKernel& kernel);

  const MatrixKernel kernel_;
  const size_t group_bytes_;
  const int64_t group_count_;  // of one matrix
  Buffer packed_;
};

// REQUIRES: a CpuBackend made it.
inline const CpuMatrix& CpuMatrixOf(const Matrix& matrix) {
  return static_cast<const CpuMatrix&>(*matrix.packed());
}

}  // namespace reprise::cpu
