// SPDX-License-Identifier: Apache-2.0
#include "kernels/devices/devices.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/devices/step_keeper.h"
#include "kernels/split/split_backend.h"

namespace reprise {

Devices::Devices(std::vector<Device> devices, Split split) : devices_(std::move(devices)) {
  CHECK(!devices_.empty());
  const auto same = [&](size_t i) {
    return [&, i](const Device& other) { return other.name == devices_[i].name; };
  };
  std::vector<JoinedMemory::Part> parts;
  std::vector<SplitBackend::Device> together;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto first = std::find_if(devices_.begin(), devices_.end(), same(i));
    const auto sharing = std::count_if(devices_.begin(), devices_.end(), same(i));
    parts.push_back({&devices_[i].backend->memory(), int(first - devices_.begin())});
    together.push_back({devices_[i].backend.get(), devices_[i].closed.get(), int(sharing)});
  }
  memory_ = std::make_unique<JoinedMemory>(std::move(parts));
  if (split == Split::kRows) {
    split_ = std::make_unique<SplitBackend>(std::move(together));
    split_->SetState(memory_.get());
    memory_->SetRest(&split_->memory());
    scratch_.emplace_back(split_->memory());
    contexts_.push_back({split_.get(), scratch_.data()});
    return;
  }
  scratch_.reserve(devices_.size());
  for (const Device& device : devices_) {
    scratch_.emplace_back(device.backend->memory());
    contexts_.push_back({device.backend.get(), &scratch_.back(), device.closed.get()});
  }
}

Devices::~Devices() = default;

void Devices::DropScratch() {
  for (const Device& device : devices_) ForgetSteps(*device.backend);
  for (size_t i = 0; i < contexts_.size(); ++i) {
    scratch_[i] = ScratchArena(contexts_[i].backend->memory());
  }
  if (split_ != nullptr) split_->DropScratch();
}

}  // namespace reprise
