// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/memory.h"

namespace reprise {

// For tests: memory of this process that acts as a device's. What a test is about is overridden.
class DisguisedMemory : public DeviceMemory {
 public:
  Result<DeviceBuffer> Allocate(size_t bytes) override { return HostMemory().Allocate(bytes); }
  Result<DeviceBuffer> Reserve(size_t bytes) override { return HostMemory().Reserve(bytes); }
  Status Commit(DevicePtr<std::byte> begin, size_t bytes) override {
    return HostMemory().Commit(begin, bytes);
  }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    HostMemory().Discard(begin, bytes);
  }
  size_t page_bytes() const override { return HostMemory().page_bytes(); }
  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    HostMemory().Upload(to, from, bytes);
  }
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override {
    HostMemory().Download(to, from, bytes);
  }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    HostMemory().Copy(to, from, bytes);
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override { HostMemory().Zero(to, bytes); }
  void Synchronize() override {}
  DevicePtr<std::byte> Reach(void* host) override { return HostMemory().Reach(host); }
  Capacity capacity() const override { return HostMemory().capacity(); }
};

}  // namespace reprise
