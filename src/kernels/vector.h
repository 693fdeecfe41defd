// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/memory.h"

namespace reprise {

// A vector of weights, f32: filled and edited on the host while a model is loaded, then uploaded
// once.
class Vector {
 public:
  // REQUIRES: not uploaded yet.
  std::vector<float>& values() { return values_; }
  size_t size() const { return values_.empty() ? uploaded_size_ : values_.size(); }
  bool empty() const { return size() == 0; }

  // Null if it is empty. REQUIRES: it has been uploaded.
  DevicePtr<const float> data() const;

 private:
  friend Result<DeviceBuffer> UploadVectors(DeviceMemory& memory, std::span<Vector* const> vectors);

  std::vector<float> values_;  // until they are uploaded
  DevicePtr<const float> data_;
  size_t uploaded_size_ = 0;
};

// Uploads all of them into one allocation, which must outlive them, and drops the host's copies.
Result<DeviceBuffer> UploadVectors(DeviceMemory& memory, std::span<Vector* const> vectors);

}  // namespace reprise
