// SPDX-License-Identifier: Apache-2.0
#include "device/joined/unit_memory.h"

#include "base/check.h"

namespace reprise {

Result<DeviceBuffer> ReserveUnits(DeviceMemory& device, const UnitShape& shape, size_t count) {
  if (auto* const joined = dynamic_cast<UnitMemory*>(&device)) {
    return joined->ReserveUnits(shape, count);
  }
  for (const UnitShape::Piece& piece : shape.pieces) CHECK(piece.memory == 0);
  const size_t page = device.page_bytes();
  return device.Reserve((shape.bytes * count + page - 1) / page * page);
}

DevicePtr<std::byte> PlaceIn(const DeviceMemory& device, int memory, DevicePtr<std::byte> units) {
  const auto* const joined = dynamic_cast<const UnitMemory*>(&device);
  CHECK(joined != nullptr || memory == 0);
  return joined != nullptr ? joined->PlaceIn(memory, units) : units;
}

}  // namespace reprise
