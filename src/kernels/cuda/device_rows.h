// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "device/raw.h"
#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/table.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/view.h"
#include "kernels/ops.h"
#include "kernels/raw_rows.h"

// For tests of kernels whose bits are the CPU's: rows that exist on both sides, and the CPU's ops
// with the specification as their table.
namespace reprise::cuda {

using Floats = std::vector<float>;

// What a row may hold: mostly ordinary numbers, some of them zeros, denormals and large ones.
inline float AnyNumber(Rng& rng) {
  const float x = rng.Uniform() * 8 - 4;
  switch (rng.Uniform() < 0.1f ? static_cast<int>(rng.Uniform() * 6) : 6) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return x * 1e-39f;
    case 3:
      return x * 1e-20f;
    case 4:
      return x * 30;
    case 5:
      return x * 1e4f;
    default:
      return x;
  }
}

// Repeats itself after a prime number of values: no width of a row fits.
inline Floats Numbers(Rng& rng, int64_t count) {
  constexpr size_t kPeriod = 4093;
  Floats values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kPeriod ? AnyNumber(rng) : values[i - kPeriod];
  }
  return values;
}

struct RowShape {
  int64_t rows;
  int64_t cols;
  int64_t pad = 0;     // floats between rows
  int64_t offset = 0;  // floats before the first
};
// Tails, misaligned rows and the widths of models.
inline const std::vector<RowShape>& RowShapes() {
  static const std::vector<RowShape> shapes = {
      {1, 1},     {3, 7, 2},  {2, 100, 0, 1}, {7, 1000, 24}, {16, 2560, 0, 3}, {1, 1024},
      {64, 4096}, {2, 12288}, {5, 16400, 4},  {300, 640},    {4096, 256},      {3, 65600}};
  return shapes;
}

// The same rows in host and device memory. What lies between rows must stay as it is.
class DeviceRows {
 public:
  DeviceRows(const RowShape& shape, Floats values)
      : shape_(shape), stride_(shape.cols + shape.pad), host_(std::move(values)), device_(host_) {}
  DeviceRows(const RowShape& shape, Rng& rng)
      : DeviceRows(shape, Numbers(rng, shape.offset + shape.rows * (shape.cols + shape.pad))) {}

  View view() const { return {device_.data() + shape_.offset, shape_.rows, shape_.cols, stride_}; }
  Rows rows() {
    return {PlaceAt(host_.data() + shape_.offset), shape_.rows, shape_.cols, stride_};
  }
  float& at(int64_t row, int64_t column) { return RowOf(rows(), row)[column]; }
  // After a change of the host's copy.
  void Upload() {
    cudaMemcpy(device_.data(), host_.data(), host_.size() * sizeof(float), cudaMemcpyHostToDevice);
  }

  // The device holds what the host holds: equal bits, or both no number.
  ::testing::AssertionResult Same() const {
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
      return ::testing::AssertionFailure() << "launch: " << cudaGetErrorString(error);
    }
    const Floats got = device_.Read();
    for (size_t i = 0; i < host_.size(); ++i) {
      if (std::isnan(host_[i]) && std::isnan(got[i])) continue;
      if (std::bit_cast<uint32_t>(host_[i]) == std::bit_cast<uint32_t>(got[i])) continue;
      return ::testing::AssertionFailure()
             << "row " << (int64_t(i) - shape_.offset) / stride_ << " column "
             << (int64_t(i) - shape_.offset) % stride_ << " of " << shape_.rows << " x "
             << shape_.cols << ": expected " << host_[i] << ", got " << got[i];
    }
    return ::testing::AssertionSuccess();
  }

 private:
  RowShape shape_;
  int64_t stride_;
  Floats host_;
  DeviceArray<float> device_;
};

// The CPU's ops on all threads, each kernel the one of kernels/reference.
class SpecifiedOps {
 public:
  SpecifiedOps() : pool_(static_cast<int>(std::thread::hardware_concurrency())) {
    cpu::OverlayScalarMatrix(&table_);
    cpu::OverlayScalarFloat(&table_);
  }
  OpContext context() {
    scratch_.Reset();
    return {&backend_, &scratch_};
  }
  ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
  cpu::KernelTable table_ = {};
  cpu::CpuBackend backend_{&pool_, &table_};
  ScratchArena scratch_;
};

}  // namespace reprise::cuda
