// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "device/device_ptr.h"
#include "device/memory.h"

namespace reprise {

// How a unit of so many bytes lies in several memories: in pieces, one after another. Without any
// it is whole in the first.
struct UnitShape {
  struct Piece {
    static constexpr size_t kBehind = SIZE_MAX;

    int memory = 0;
    size_t bytes = 0;
    size_t place = kBehind;  // in the part of its memory; behind the piece in front of it there
  };
  size_t bytes = 0;
  std::vector<Piece> pieces = {};
};

// Memory that lies above others (device/joined/joined_memory.h) is one of these, too.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;
  virtual Result<DeviceBuffer> ReserveUnits(const UnitShape& shape, size_t count) = 0;
  virtual DevicePtr<std::byte> PlaceIn(int memory, DevicePtr<std::byte> units) const = 0;
  // How they lie, with all places said; null: they are none of its.
  virtual const UnitShape* ShapeOf(DevicePtr<std::byte> units) const = 0;
  // Bytes of the part of a unit that lies in `memory`.
  virtual size_t UnitBytesIn(int memory, DevicePtr<std::byte> units) const = 0;
};

// Addresses for `count` units, one after another, that are to be committed: copies and fills find
// the pieces of a unit by them.
Result<DeviceBuffer> ReserveUnits(DeviceMemory& device, const UnitShape& shape, size_t count);
// Where the pieces that lie in `memory` begin, as the ops there see it: those of one unit are
// together, and units follow one another.
DevicePtr<std::byte> PlaceIn(const DeviceMemory& device, int memory, DevicePtr<std::byte> units);

}  // namespace reprise
