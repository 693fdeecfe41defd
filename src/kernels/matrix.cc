// SPDX-License-Identifier: Apache-2.0
#include "kernels/matrix.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "kernels/cpu/table.h"

namespace reprise {

Result<Matrix> Matrix::Pack(const OpContext& context, DType dtype, int64_t rows, int64_t cols,
                            const std::byte* source, size_t stride) {
  CHECK(rows >= 0 && cols > 0 && cols % TraitsOf(dtype).block_elements == 0);
  const cpu::MatrixKernel& kernel = context.table->matrix[static_cast<size_t>(dtype)];
  CHECK(kernel.run != nullptr);
  Matrix matrix;
  matrix.dtype_ = dtype;
  matrix.rows_ = rows;
  matrix.cols_ = cols;
  matrix.kernel_ = kernel;
  matrix.group_bytes_ = kernel.group_bytes(cols);
  const int64_t groups = (rows + kernel.group_rows - 1) / kernel.group_rows;
  matrix.group_count_ = groups;
  if (groups > 0 && matrix.group_bytes_ > SIZE_MAX / static_cast<size_t>(groups)) {
    return ResourceExhausted("a matrix of " + std::to_string(rows) + " x " + std::to_string(cols) +
                             " does not fit in the address space");
  }
  REPRISE_ASSIGN(matrix.packed_, Buffer::Allocate(size_t(groups) * matrix.group_bytes_));
  context.pool->ParallelFor(groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t row = group * kernel.group_rows;
      const int count = static_cast<int>(std::min<int64_t>(kernel.group_rows, rows - row));
      kernel.pack(source + size_t(row) * stride, stride, count, cols,
                  matrix.packed_.data() + size_t(group) * matrix.group_bytes_);
    }
  });
  return matrix;
}

void Matrix::UnpackRow(int64_t row, float* out) const {
  CHECK(row >= 0 && row < rows_);
  const int64_t group_rows = kernel_.group_rows;
  kernel_.unpack_row(group(row / group_rows), static_cast<int>(row % group_rows), cols_, out);
}

}  // namespace reprise
