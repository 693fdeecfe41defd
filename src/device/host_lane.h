// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/device_ptr.h"
#include "device/memory.h"

namespace reprise {

// Memory of the host beside a device, and copies between the two that go on while the device
// computes, where it can do that. Copies are done in the order in which they were asked for.
//
//   lane->Follow();                     what is copied next is what the device has computed so far
//   lane->Out(data, block, bytes); ...
//   mark = lane->Mark();                ... later: if (lane->Reached(mark)) it is there
//
// Thread safety: none; the thread that calls the device.
class HostLane {
 public:
  virtual ~HostLane() = default;  // waits for what is under way

  // [size()], where the device can reach it. Zeros at first.
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  // Whether copies go on by themselves; if not, Out and In return when they are done.
  virtual bool beside() const = 0;

  // Copies that are asked for from now on begin when the device has done what it was asked so far.
  virtual void Follow() = 0;
  // REQUIRES: `to` and `from` are in data(). The device's memory is left alone until they are done.
  virtual void Out(std::byte* to, DevicePtr<const std::byte> from, size_t bytes) = 0;
  virtual void In(DevicePtr<std::byte> to, const std::byte* from, size_t bytes) = 0;
  // What the device is asked from now on begins when the copies asked for so far are done.
  virtual void Join() = 0;

  // Behind all copies that were asked for so far. Marks are reached in their order.
  virtual uint64_t Mark() = 0;
  virtual bool Reached(uint64_t mark) = 0;
};

// Memory of a device that copies beside its ops is one of these, too.
class LaneSource {
 public:
  virtual ~LaneSource() = default;
  virtual Result<std::unique_ptr<HostLane>> OpenLane(size_t bytes) = 0;
};

// A lane with `bytes` of memory, all of it taken now; it ends before the device does. Fails with
// kResourceExhausted and the numbers.
Result<std::unique_ptr<HostLane>> OpenLane(DeviceMemory& device, size_t bytes);
// One whose copies are done by whoever asks for them, on any device.
Result<std::unique_ptr<HostLane>> OpenPlainLane(DeviceMemory& device, size_t bytes);

}  // namespace reprise
