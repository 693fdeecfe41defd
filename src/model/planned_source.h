// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/tensor_plan.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace reprise {

// The rows of a planned tensor in a checkpoint, wherever they lie: in a tensor of their own, in one
// per slice, or in parts of a larger one. A view: tensor and checkpoint must outlive it.
class PlannedSource {
 public:
  // One sentence if it is missing, of another shape, or made of integers.
  static Result<PlannedSource> Find(const Checkpoint& checkpoint, const PlannedTensor& tensor);

  DType dtype() const { return stored_[0]->dtype; }
  // The stored tensors behind it, in order of slices.
  std::span<const StoredTensor* const> stored() const { return stored_; }
  uint64_t bytes() const;

  // Row `row` of [0, tensor.row_count()), in the order of the file's heads, as `dtype`.
  // Thread safety: may be called from several threads.
  void ReadRow(int64_t row, DType dtype, std::byte* out) const;
  // All rows of a slice as they are stored, one after another; null if they do not lie so.
  const std::byte* Contiguous(int64_t slice) const;

 private:
  explicit PlannedSource(const PlannedTensor& tensor) : tensor_(&tensor) {}
  Status Take(const Checkpoint& checkpoint, const std::string& name, const Shape& shape);
  Status TakeFused(const Checkpoint& checkpoint, const std::string& name, const FusedTensor& fused);
  void ReadTransposed(int64_t row, DType dtype, std::byte* out) const;

  const PlannedTensor* tensor_;
  std::vector<const StoredTensor*> stored_;
  const FusedTensor* fused_ = nullptr;  // of the plan; null: tensors of their own
};

}  // namespace reprise
