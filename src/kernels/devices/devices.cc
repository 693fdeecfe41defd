// SPDX-License-Identifier: Apache-2.0
#include "kernels/devices/devices.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/devices/step_keeper.h"

namespace reprise {

Devices::Devices(std::vector<Device> devices) : devices_(std::move(devices)) {
  CHECK(!devices_.empty());
  std::vector<JoinedMemory::Part> parts;
  for (size_t i = 0; i < devices_.size(); ++i) {
    Backend& backend = *devices_[i].backend;
    scratch_.emplace_back(backend.memory());
    const auto first = std::find_if(devices_.begin(), devices_.end(), [&](const Device& other) {
      return other.name == devices_[i].name;
    });
    parts.push_back({&backend.memory(), int(first - devices_.begin())});
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    contexts_.push_back({devices_[i].backend.get(), &scratch_[i], devices_[i].closed.get()});
  }
  memory_ = std::make_unique<JoinedMemory>(std::move(parts));
}

void Devices::DropScratch() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    ForgetSteps(*devices_[i].backend);
    scratch_[i] = ScratchArena(devices_[i].backend->memory());
  }
}

}  // namespace reprise
