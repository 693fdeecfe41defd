// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "device/thread_pool.h"
#include "kernels/cuda/quantised/layout.h"
#include "kernels/cuda/tensor/product_half.h"
#include "kernels/matrix.h"

namespace reprise::cuda {

// How a product takes its activations: what the type of the weights asks for.
enum class ActivationForm : uint8_t { kF32, kF16, kBlock32, kBlock256 };
ActivationForm FormOf(DType weights);

// Weights in device memory, all matrices of a stack in one allocation, the rows of one behind those
// of the last. F32 as in the file; 16-bit rows in f16 (reference/gpu/bf16_weights.h), padded with
// zeros to a multiple of 16. Quantised types lie packed for 16-bit activations (packed/packed.h),
// each matrix of a stack by itself; or in planes for integers (quantised/layout.h), if they have no
// packed form, and on GPUs other than Hopper.
class CudaMatrix : public PackedMatrix {
 public:
  static Result<std::unique_ptr<PackedMatrix>> Make(DeviceMemory& memory, const MatrixShape& shape);

  // Of its allocation.
  static size_t BytesOf(const MatrixShape& shape);

  size_t bytes() const override { return buffer_.size(); }
  ActivationForm form() const { return packed() ? ActivationForm::kF16 : FormOf(shape().dtype); }
  // Whether half() is packed.
  bool packed() const { return packed_.form != PackedForm::kNone; }

  // Of the type that form() says.
  const float* f32() const;
  HalfMatrix half(int64_t index = 0) const;
  // All matrices of the stack, for rows that the plan divides among them.
  HalfGroups half_groups(const int32_t* begin, const int32_t* row) const;
  QuantisedMatrix quantised() const;  // all rows of the stack
  QuantisedMatrix quantised_part(int64_t index) const;

  // Packs matrix `index` and uploads it.
  Status Pack(DeviceMemory& memory, ThreadPool& threads, int64_t index, const std::byte* source,
              size_t stride);

 private:
  explicit CudaMatrix(const MatrixShape& shape);

  void PackBF16(DeviceMemory& memory, ThreadPool& threads, int64_t index, const std::byte* source,
                size_t stride);
  void PackUnits(DeviceMemory& memory, ThreadPool& threads, int64_t index, const std::byte* source,
                 size_t stride);
  void PackQuantised(DeviceMemory& memory, ThreadPool& threads, int64_t index,
                     const std::byte* source, size_t stride);

  int64_t stride_ = 0;      // elements from row to row, of F32 and 16-bit types
  QuantisedLayout layout_;  // of quantised ones in planes
  PackedLayout packed_;     // of others, of one matrix
  DeviceBuffer buffer_;
  std::vector<float> scales_;  // of every matrix of BF16; on the device, too
  DeviceBuffer device_scales_;
};

// REQUIRES: a CudaBackend made it.
inline const CudaMatrix& CudaMatrixOf(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(*matrix.packed());
}

}  // namespace reprise::cuda
