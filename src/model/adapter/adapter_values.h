// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/matrix.h"
#include "kernels/op_context.h"
#include "weights/format/stored_tensor.h"

namespace reprise {

// Rows of an adapter's weights as they are multiplied with: in the order of memory, of a type that
// has no blocks. What lies so in the file is not copied.
class AdapterValues {
 public:
  // Views the tensor. REQUIRES: CanView; the file outlives it.
  static AdapterValues View(const StoredTensor& tensor);
  // Zeros.
  AdapterValues(DType type, int64_t row_count, int64_t col_count);

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t row_bytes() const { return RowBytes(dtype_, cols_); }
  size_t bytes() const { return row_bytes() * size_t(rows_); }
  const std::byte* data() const { return viewed_ != nullptr ? viewed_ : own_.data(); }
  // REQUIRES: no view.
  std::byte* row(int64_t i) { return own_.data() + row_bytes() * size_t(i); }
  void SetRow(int64_t i, const float* values);

  // `count` matrices of a stack, one after another.
  Result<Matrix> Pack(int64_t count, const OpContext& context) const;

 private:
  AdapterValues() = default;

  DType dtype_ = DType::kF32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  const std::byte* viewed_ = nullptr;
  std::vector<std::byte> own_;
};

// What an adapter's tensor is held as: floats as they are stored, all else as F32.
DType HeldAs(const StoredTensor& tensor);
// Whether its values may be read where they lie.
bool CanView(const StoredTensor& tensor);
// A row of its values; more dimensions than two: all rows, one after another.
void ReadFloats(const StoredTensor& tensor, int64_t row, float* out);
std::string ShapeText(int64_t rows, int64_t cols);

}  // namespace reprise
