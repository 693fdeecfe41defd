// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kernels/cuda/view.h"

namespace reprise::cuda {

// Memory of the host that the GPU reaches (Pinned), and where the device wants it.
// REQUIRES: all are multiples of 16.
struct HostArrays {
  const std::byte* from = nullptr;
  size_t bytes = 0;
  std::byte* to = nullptr;

  // Few are read by a kernel: a decoded token waits for them, and the copy engine takes longer to
  // begin.
  bool few() const { return bytes <= size_t{64} << 10; }
  // Where the host has what will be at `place`.
  template <typename T>
  const T* AtHost(const T* place) const {
    return reinterpret_cast<const T*>(from + (reinterpret_cast<const std::byte*>(place) - to));
  }
};
void BringArrays(Stream stream, const HostArrays& arrays);

}  // namespace reprise::cuda
