// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace reprise::cuda {

// Device memory of a test: uploaded from a vector, read back as one. What was not written shows as
// a pattern that is no number.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    CHECK(cudaMalloc(&data_, count * sizeof(T) + 1) == cudaSuccess);
    cudaMemset(data_, 0xFF, count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

}  // namespace reprise::cuda
