// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "device/raw.h"
#include "device/thread_pool.h"
#include "kernels/cuda/architecture.h"
#include "kernels/reference/gpu/bf16_weights.h"

namespace reprise::cuda {
namespace {

int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }

size_t ElementBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

}  // namespace

ActivationForm FormOf(DType weights) {
  if (weights == DType::kF32) return ActivationForm::kF32;
  if (weights == DType::kF16 || weights == DType::kBF16) return ActivationForm::kF16;
  return TraitsOf(weights).block_elements == 32 ? ActivationForm::kBlock32
                                                : ActivationForm::kBlock256;
}

CudaMatrix::CudaMatrix(const MatrixShape& shape) : PackedMatrix(shape) {
  const ActivationForm form = FormOf(shape.dtype);
  if (form == ActivationForm::kF32) {
    stride_ = shape.cols;
  } else if (form == ActivationForm::kF16) {
    stride_ = RoundUp16(shape.cols);
  } else if (PackedFormOf(shape.dtype) != PackedForm::kNone &&
             (shape.count == 1 || ThisGpu().packs_stacks())) {
    packed_ = {PackedFormOf(shape.dtype), shape.dtype, shape.rows, shape.cols};
  } else {
    layout_ = LayoutOf(shape.dtype, shape.count * shape.rows, shape.cols);
  }
}

size_t CudaMatrix::BytesOf(const MatrixShape& shape) {
  const CudaMatrix matrix(shape);
  if (matrix.packed()) return size_t(shape.count) * matrix.packed_.bytes();
  if (matrix.stride_ == 0) return matrix.layout_.bytes;
  return size_t(shape.count * shape.rows * matrix.stride_) * ElementBytes(shape.dtype);
}

Result<std::unique_ptr<PackedMatrix>> CudaMatrix::Make(DeviceMemory& memory,
                                                       const MatrixShape& shape) {
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix(shape));
  REPRISE_ASSIGN(matrix->buffer_, memory.Allocate(BytesOf(shape)));
  if (shape.dtype == DType::kBF16) {
    matrix->scales_.assign(size_t(shape.count), 1.0f);
    REPRISE_ASSIGN(matrix->device_scales_, memory.Allocate(size_t(shape.count) * sizeof(float)));
  }
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

const float* CudaMatrix::f32() const { return Raw(buffer_.data().As<const float>()); }

HalfMatrix CudaMatrix::half(int64_t index) const {
  if (packed()) {
    const DevicePtr<std::byte> first = buffer_.data() + index * int64_t(packed_.bytes());
    return {Raw(first.As<const uint16_t>()), shape().rows, shape().cols,
            packed_.padded_cols(),           1.0f,         packed_.form};
  }
  return {Raw(buffer_.data().As<const uint16_t>()) + index * shape().rows * stride_, shape().rows,
          shape().cols, stride_, scales_.empty() ? 1.0f : scales_[size_t(index)]};
}

HalfGroups CudaMatrix::half_groups(const int32_t* begin, const int32_t* row) const {
  return {begin, row, static_cast<int>(shape().count), shape().rows * stride_,
          scales_.empty() ? nullptr : Raw(device_scales_.data().As<const float>())};
}

QuantisedMatrix CudaMatrix::quantised() const { return {layout_, Raw(buffer_.data())}; }

// The same planes, seen from the first row of the part.
QuantisedMatrix CudaMatrix::quantised_part(int64_t index) const {
  QuantisedMatrix part = quantised();
  const int64_t row = index * shape().rows;
  const int64_t moved = row * layout_.quant_stride;
  part.data += moved;
  const auto plane = [&](size_t begin, int64_t row_stride) {
    return size_t(int64_t(begin) + row * row_stride - moved);
  };
  part.layout.rows = shape().rows;
  part.layout.extra = plane(layout_.extra, layout_.extra_stride);
  part.layout.sub = plane(layout_.sub, layout_.sub_stride);
  part.layout.scale = plane(layout_.scale, layout_.scale_stride);
  part.layout.grid = plane(layout_.grid, 0);
  return part;
}

Status CudaMatrix::Pack(DeviceMemory& memory, ThreadPool& threads, int64_t index,
                        const std::byte* source, size_t stride) {
  if (packed()) {
    PackUnits(memory, threads, index, source, stride);
    return OkStatus();
  }
  if (stride_ == 0) {
    PackQuantised(memory, threads, index, source, stride);
    return OkStatus();
  }
  if (shape().dtype == DType::kBF16) {
    PackBF16(memory, threads, index, source, stride);
    return OkStatus();
  }
  const size_t from_bytes = size_t(shape().cols) * ElementBytes(shape().dtype);
  const size_t to_bytes = size_t(stride_) * ElementBytes(shape().dtype);
  const size_t matrix_bytes = size_t(shape().rows) * to_bytes;
  const DevicePtr<std::byte> to = buffer_.data() + index * int64_t(matrix_bytes);
  if (stride == to_bytes && from_bytes == to_bytes) {
    memory.Upload(to, source, matrix_bytes);
    return OkStatus();
  }
  std::vector<std::byte> rows(matrix_bytes);
  threads.ParallelFor(shape().rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(rows.data() + size_t(row) * to_bytes, source + size_t(row) * stride, from_bytes);
    }
  });
  memory.Upload(to, rows.data(), matrix_bytes);
  return OkStatus();
}

void CudaMatrix::PackBF16(DeviceMemory& memory, ThreadPool& threads, int64_t index,
                          const std::byte* source, size_t stride) {
  const auto for_rows = [&](const auto& body) {
    threads.ParallelFor(shape().rows, 64, [&](int64_t begin, int64_t end) {
      std::vector<uint16_t> row(static_cast<size_t>(shape().cols));  // files align nothing
      for (int64_t r = begin; r < end; ++r) {
        std::memcpy(row.data(), source + size_t(r) * stride, row.size() * 2);
        body(r, std::span<const uint16_t>(row));
      }
    });
  };
  std::atomic<uint16_t> largest{0};
  for_rows([&](int64_t, std::span<const uint16_t> row) {
    const uint16_t mine = reference::LargestBF16(row);
    uint16_t seen = largest.load();
    while (mine > seen && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  const int exponent = reference::BF16Exponent(largest);
  std::vector<uint16_t> rows(size_t(shape().rows * stride_));
  for_rows([&](int64_t r, std::span<const uint16_t> row) {
    uint16_t* to = rows.data() + r * stride_;
    for (const uint16_t w : row) *to++ = reference::BF16ToScaledF16(w, exponent);
  });
  scales_[size_t(index)] = std::ldexp(1.0f, -exponent);
  memory.Upload(buffer_.data() + index * int64_t(rows.size() * 2),
                reinterpret_cast<const std::byte*>(rows.data()), rows.size() * 2);
  memory.Upload(device_scales_.data() + index * int64_t(sizeof(float)),
                reinterpret_cast<const std::byte*>(&scales_[size_t(index)]), sizeof(float));
}

void CudaMatrix::PackUnits(DeviceMemory& memory, ThreadPool& threads, int64_t index,
                           const std::byte* source, size_t stride) {
  std::vector<std::byte> units(packed_.bytes());
  const int64_t tiles = packed_.padded_rows() / kPackedRows;
  threads.ParallelFor(tiles, 4, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPackedRows;
    PackWeights(packed_, source + size_t(first) * stride, stride, first,
                std::min(end * kPackedRows, shape().rows), units.data());
  });
  memory.Upload(buffer_.data() + index * int64_t(units.size()), units.data(), units.size());
}

// The planes of one matrix are packed for themselves and sent to their places in those of the
// stack.
void CudaMatrix::PackQuantised(DeviceMemory& memory, ThreadPool& threads, int64_t index,
                               const std::byte* source, size_t stride) {
  const int64_t rows = shape().rows;
  const QuantisedLayout one = LayoutOf(shape().dtype, rows, shape().cols);
  std::vector<std::byte> packed(one.bytes);
  threads.ParallelFor(rows, 16, [&](int64_t begin, int64_t end) {
    PackRows(one, source + size_t(begin) * stride, stride, begin, end, packed.data());
  });
  const auto send = [&](size_t from, size_t to, int64_t row_stride) {
    memory.Upload(buffer_.data() + int64_t(to) + index * rows * row_stride, packed.data() + from,
                  size_t(rows * row_stride));
  };
  send(0, 0, one.quant_stride);
  send(one.extra, layout_.extra, one.extra_stride);
  send(one.sub, layout_.sub, one.sub_stride);
  send(one.scale, layout_.scale, one.scale_stride);
  if (index == 0 && layout_.grid != 0) {
    PackTables(one, packed.data());
    memory.Upload(buffer_.data() + int64_t(layout_.grid), packed.data() + one.grid,
                  one.bytes - one.grid);
  }
}

}  // namespace reprise::cuda
