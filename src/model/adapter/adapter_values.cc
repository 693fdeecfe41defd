// SPDX-License-Identifier: Apache-2.0
#include "model/adapter/adapter_values.h"

#include "base/check.h"
#include "kernels/backend.h"
#include "tensor/codec.h"

namespace reprise {

AdapterValues AdapterValues::View(const StoredTensor& tensor) {
  CHECK(CanView(tensor));
  AdapterValues values;
  values.dtype_ = tensor.dtype;
  values.cols_ = tensor.shape.cols();
  values.rows_ = tensor.shape.elements() / values.cols_;
  values.viewed_ = tensor.bytes.data();
  return values;
}

AdapterValues::AdapterValues(DType type, int64_t row_count, int64_t col_count)
    : dtype_(type),
      rows_(row_count),
      cols_(col_count),
      own_(RowBytes(type, col_count) * size_t(row_count)) {}

void AdapterValues::SetRow(int64_t i, const float* values) {
  QuantiseRow(dtype_, values, row(i), cols_);
}

Result<Matrix> AdapterValues::Pack(int64_t count, const OpContext& context) const {
  const DType held = context.backend->HeldAs(dtype_);
  const MatrixShape shape = {held, count, rows_ / count, cols_};
  if (held == dtype_) return Matrix::Pack(context, shape, data(), row_bytes());
  AdapterValues other(held, rows_, cols_);
  std::vector<float> values(static_cast<size_t>(cols_));
  for (int64_t r = 0; r < rows_; ++r) {
    DequantiseRow(dtype_, data() + row_bytes() * size_t(r), values.data(), cols_);
    other.SetRow(r, values.data());
  }
  return Matrix::Pack(context, shape, other.data(), other.row_bytes());
}

DType HeldAs(const StoredTensor& tensor) {
  const bool is_float = tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  return is_float ? tensor.dtype : DType::kF32;
}

bool CanView(const StoredTensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  return HeldAs(tensor) == tensor.dtype && address % alignof(float) == 0;
}

void ReadFloats(const StoredTensor& tensor, int64_t row, float* out) {
  const int64_t cols = tensor.shape.cols();
  const std::byte* at = tensor.bytes.data() + RowBytes(tensor.dtype, cols) * size_t(row);
  DequantiseRow(tensor.dtype, at, out, cols);
}

std::string ShapeText(int64_t rows, int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

}  // namespace reprise
