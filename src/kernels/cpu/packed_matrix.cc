// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace reprise::cpu {

CpuMatrix::CpuMatrix(const MatrixShape& shape, const MatrixKernel& kernel)
    : PackedMatrix(shape),
      kernel_(kernel),
      group_bytes_(kernel.group_bytes(shape.cols)),
      group_count_((shape.rows + kernel.group_rows - 1) / kernel.group_rows) {}

Result<std::unique_ptr<PackedMatrix>> CpuMatrix::Make(const MatrixShape& shape,
                                                      const MatrixKernel& kernel) {
  std::unique_ptr<CpuMatrix> matrix(new CpuMatrix(shape, kernel));
  size_t bytes = 0;
  if (__builtin_mul_overflow(size_t(shape.count), size_t(matrix->group_count_), &bytes) ||
      __builtin_mul_overflow(bytes, matrix->group_bytes_, &bytes)) {
    return ResourceExhausted(std::to_string(shape.count) + " matrices of " +
                             std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                             " do not fit in the address space");
  }
  REPRISE_ASSIGN(matrix->packed_, Buffer::Allocate(bytes));
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

Result<std::unique_ptr<PackedMatrix>> CpuBackend::MakeMatrix(const MatrixShape& shape) {
  CHECK(shape.count > 0 && shape.rows >= 0 && shape.cols > 0);
  CHECK(shape.cols % TraitsOf(shape.dtype).block_elements == 0);
  const MatrixKernel& kernel = table_->matrix[static_cast<size_t>(shape.dtype)];
  CHECK(kernel.run != nullptr);
  return CpuMatrix::Make(shape, kernel);
}

// Coded types take more than their files (coded/blocks.h).
size_t CpuBackend::MatrixBytes(const MatrixShape& shape) const {
  const MatrixKernel& kernel = table_->matrix[static_cast<size_t>(shape.dtype)];
  const auto groups = size_t((shape.rows + kernel.group_rows - 1) / kernel.group_rows);
  return kernel.group_bytes(shape.cols) * groups * size_t(shape.count);
}

Status CpuBackend::PackMatrix(PackedMatrix* matrix, int64_t index, const std::byte* source,
                              size_t stride) {
  const MatrixShape& shape = matrix->shape();
  CHECK(index >= 0 && index < shape.count);
  CpuMatrix& packed = static_cast<CpuMatrix&>(*matrix);
  const PackedSlice slice = packed.slice(index);
  const MatrixKernel& kernel = *slice.kernel;
  pool_->ParallelFor(slice.group_count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t row = group * kernel.group_rows;
      const int count = static_cast<int>(std::min<int64_t>(kernel.group_rows, shape.rows - row));
      kernel.pack(source + size_t(row) * stride, stride, count, shape.cols,
                  packed.group(index, group));
    }
  });
  return OkStatus();
}

}  // namespace reprise::cpu
