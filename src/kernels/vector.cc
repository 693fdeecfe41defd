// SPDX-License-Identifier: Apache-2.0
#include "kernels/vector.h"

#include <cstdint>

#include "base/check.h"

namespace reprise {
namespace {

// Floats of a vector's place: whole cache lines.
size_t PlaceFloats(size_t size) { return (size + 15) / 16 * 16; }

}  // namespace

DevicePtr<const float> Vector::data() const {
  CHECK(values_.empty());
  return data_;
}

Result<DeviceBuffer> UploadVectors(DeviceMemory& memory, std::span<Vector* const> vectors) {
  size_t floats = 0;
  for (const Vector* vector : vectors) floats += PlaceFloats(vector->values_.size());
  REPRISE_ASSIGN(DeviceBuffer buffer, memory.Allocate(floats * sizeof(float)));
  DevicePtr<float> place = buffer.data().As<float>();
  for (Vector* vector : vectors) {
    const size_t size = vector->values_.size();
    if (size == 0) continue;
    memory.UploadArray<float>(place, vector->values_);
    vector->data_ = place;
    vector->uploaded_size_ = size;
    vector->values_ = {};
    place = place + int64_t(PlaceFloats(size));
  }
  return buffer;
}

}  // namespace reprise
