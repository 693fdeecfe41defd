// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "device/device_ptr.h"
#include "device/memory.h"

namespace reprise {

// Memory of one of several devices of a kind that reach one another without the host.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;

  // The calling thread works with this device from now on.
  virtual void Use() const = 0;
  // Copies `rows` runs of `width` bytes, `pitch` apart in both, from the memory of another device,
  // behind what both were asked for before and in front of what they will be. False: that one is of
  // another kind, and nothing was done.
  virtual bool TakeRows(DeviceMemory& from, DevicePtr<const std::byte> source,
                        DevicePtr<std::byte> to, size_t width, size_t pitch, size_t rows) = 0;
};

}  // namespace reprise
