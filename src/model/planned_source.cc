// SPDX-License-Identifier: Apache-2.0
#include "model/planned_source.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "tensor/codec.h"
#include "weights/convert.h"

namespace reprise {
namespace {

// Extents that are not 1.
std::vector<int64_t> Squeezed(const Shape& shape) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != 1) extents.push_back(shape[axis]);
  }
  return extents;
}

// Whether a matrix of stored rows can be taken for `shape`: the same rows of the same width.
// Extents of 1 come and go between formats ([channels, 1, reach] is [channels, reach]), and a stack
// may be listed as one tall matrix.
bool SameRows(const Shape& stored, const Shape& shape) {
  return Squeezed(stored) == Squeezed(shape) ||
         (shape.rank() == 3 && stored.cols() == shape.cols() && stored.rows() == shape.rows());
}

// Whether a vector can be taken for `shape`; it may be flat in one format and divided by head or
// group in the other.
bool SameValues(const Shape& stored, const Shape& shape) {
  const std::vector<int64_t> a = Squeezed(stored);
  const std::vector<int64_t> b = Squeezed(shape);
  return a == b || ((a.size() <= 1 || b.size() <= 1) && stored.elements() == shape.elements());
}

// The name of one slice: its number in place of "{}", the name at that index in place of "{r,k,v}".
std::string SliceName(const std::string& pattern, int64_t slice) {
  const size_t open = pattern.find('{');
  const size_t close = pattern.find('}');
  if (open == std::string::npos || close == std::string::npos) return pattern;
  std::string item = std::to_string(slice);
  if (close > open + 1) {
    size_t begin = open + 1;
    for (; slice > 0; --slice) begin = std::min(close, pattern.find(',', begin)) + 1;
    item = begin < close ? pattern.substr(begin, std::min(close, pattern.find(',', begin)) - begin)
                         : std::string();
  }
  return pattern.substr(0, open) + item + pattern.substr(close + 1);
}

Shape ShapeOf(const PlannedTensor& tensor) {
  if (tensor.slices > 1) return {tensor.slices, tensor.rows, tensor.cols};
  if (tensor.rows == 1 && !tensor.is_matrix()) return {tensor.cols};
  return {tensor.rows, tensor.cols};
}

}  // namespace

Result<PlannedSource> PlannedSource::Find(const Checkpoint& checkpoint,
                                          const PlannedTensor& tensor) {
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  const std::string& name = gguf ? tensor.gguf : tensor.hf;
  const auto name_of = [gguf](const FusedTensor& fused) -> const std::string& {
    return gguf ? fused.gguf : fused.hf;
  };
  PlannedSource source(tensor);
  if (name.empty() || checkpoint.Find(SliceName(name, 0)) == nullptr) {
    for (const FusedTensor* fused : {&tensor.fused, &tensor.other_fused}) {
      if (name_of(*fused).empty() || checkpoint.Find(name_of(*fused)) == nullptr) continue;
      REPRISE_TRY(source.TakeFused(checkpoint, name_of(*fused), *fused));
      return source;
    }
  }
  const std::string& fused = name_of(tensor.fused);
  if (!gguf && name.find('{') != std::string::npos) {
    for (int64_t slice = 0; slice < tensor.slices; ++slice) {
      REPRISE_TRY(source.Take(checkpoint, SliceName(name, slice), {tensor.rows, tensor.cols}));
    }
    return source;
  }
  REPRISE_TRY(source.Take(checkpoint, name.empty() ? fused : name, ShapeOf(tensor)));
  return source;
}

Status PlannedSource::TakeFused(const Checkpoint& checkpoint, const std::string& name,
                                const FusedTensor& fused) {
  fused_ = &fused;
  int64_t cols = fused.transposed ? tensor_->rows * fused.step : tensor_->cols;
  const int64_t parts = tensor_->slices > 1 ? tensor_->slices : 1;
  int64_t rows = fused.rows / parts;
  // Two of our rows may be one there, gate and up behind each other: they lie as they would alone.
  const StoredTensor* const stored = checkpoint.Find(name);
  const bool twice = fused.transposed && stored != nullptr && stored->shape.cols() == 2 * cols;
  if (twice && rows % 2 == 0) rows /= 2, cols *= 2;
  REPRISE_TRY(Take(checkpoint, name, {parts, rows, cols}));
  if (fused.transposed && (IsQuantised(dtype()) || stored_[0]->recipe != nullptr)) {
    return InvalidArgument("tensor " + Quoted(name) +
                           " is quantised in blocks that cannot be turned");
  }
  return OkStatus();
}

Status PlannedSource::Take(const Checkpoint& checkpoint, const std::string& name,
                           const Shape& shape) {
  const StoredTensor* stored = checkpoint.Find(name);
  const bool fits =
      stored != nullptr &&
      (tensor_->is_matrix() ? SameRows(stored->shape, shape) && stored->shape.cols() == shape.cols()
                            : SameValues(stored->shape, shape));
  if (!fits) {
    REPRISE_ASSIGN(stored, checkpoint.Require(name, shape));
  }
  if (stored->dtype == DType::kI32) {
    return InvalidArgument("tensor " + Quoted(name) + " holds integers, not weights");
  }
  if (stored->recipe != nullptr && !tensor_->is_matrix()) {
    return InvalidArgument("tensor " + Quoted(name) + " is quantised, but no matrix");
  }
  if (!stored_.empty() && stored->dtype != dtype()) {
    return InvalidArgument("tensor " + Quoted(name) + " has another type than " +
                           Quoted(stored_[0]->name));
  }
  stored_.push_back(stored);
  return OkStatus();
}

uint64_t PlannedSource::bytes() const {
  uint64_t total = 0;
  for (const StoredTensor* stored : stored_) {
    total += stored->bytes.size() + stored->scales.size();
  }
  return total;
}

void PlannedSource::ReadRow(int64_t row, DType dtype, std::byte* out) const {
  if (fused_ != nullptr && fused_->transposed) return ReadTransposed(row, dtype, out);
  const size_t slice = stored_.size() > 1 ? size_t(row / tensor_->rows) : 0;
  if (stored_.size() > 1) row %= tensor_->rows;
  if (fused_ != nullptr) row = fused_->RowOf(row);
  const StoredTensor& stored = *stored_[slice];
  if (tensor_->is_matrix()) return ConvertRows(stored, dtype, row, row + 1, out);
  // The rows of a vector are those of the plan: in the file it may be flat.
  std::vector<float> values(size_t(tensor_->cols));
  const size_t row_bytes = RowBytes(stored.dtype, tensor_->cols);
  DequantiseRow(stored.dtype, stored.bytes.data() + size_t(row) * row_bytes, values.data(),
                tensor_->cols);
  QuantiseRow(dtype, values.data(), out, tensor_->cols);
}

void PlannedSource::ReadTransposed(int64_t row, DType dtype, std::byte* out) const {
  const StoredTensor& stored = *stored_[0];
  const size_t element = RowBytes(stored.dtype, 1);
  const int64_t slice = row / tensor_->rows;
  std::vector<float> values(size_t(tensor_->cols));
  for (int64_t col = 0; col < tensor_->cols; ++col) {
    const int64_t from = fused_->RowOf(slice * tensor_->cols + col);
    const int64_t column = fused_->first_column + row % tensor_->rows * fused_->step;
    const size_t at = size_t(from * tensor_->rows * fused_->step + column) * element;
    DequantiseRow(stored.dtype, stored.bytes.data() + at, &values[size_t(col)], 1);
  }
  QuantiseRow(dtype, values.data(), out, tensor_->cols);
}

const std::byte* PlannedSource::Contiguous(int64_t slice) const {
  if (fused_ != nullptr || stored_[0]->split() || stored_[0]->recipe != nullptr) return nullptr;
  if (stored_.size() > 1) return stored_[size_t(slice)]->bytes.data();
  return stored_[0]->bytes.data() +
         size_t(slice * tensor_->rows) * RowBytes(dtype(), tensor_->cols);
}

}  // namespace reprise
