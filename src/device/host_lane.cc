// SPDX-License-Identifier: Apache-2.0
#include "device/host_lane.h"

#include <memory>
#include <utility>

#include "device/buffer.h"

namespace reprise {
namespace {

// Copies by the thread that asks for them.
class PlainLane final : public HostLane {
 public:
  PlainLane(DeviceMemory* device, Buffer buffer)
      : device_(device), buffer_(std::move(buffer)), data_(buffer_.data()) {}

  std::byte* data() const override { return data_; }
  size_t size() const override { return buffer_.size(); }
  bool beside() const override { return false; }
  void Follow() override {}
  void Out(std::byte* to, DevicePtr<const std::byte> from, size_t bytes) override {
    device_->Download(to, from, bytes);
  }
  void In(DevicePtr<std::byte> to, const std::byte* from, size_t bytes) override {
    device_->Upload(to, from, bytes);
  }
  void Join() override {}
  uint64_t Mark() override { return 0; }
  bool Reached(uint64_t) override { return true; }

 private:
  DeviceMemory* const device_;
  Buffer buffer_;
  std::byte* const data_;
};

}  // namespace

Result<std::unique_ptr<HostLane>> OpenPlainLane(DeviceMemory& device, size_t bytes) {
  REPRISE_ASSIGN(Buffer buffer, Buffer::Allocate(bytes));
  return std::unique_ptr<HostLane>(std::make_unique<PlainLane>(&device, std::move(buffer)));
}

Result<std::unique_ptr<HostLane>> OpenLane(DeviceMemory& device, size_t bytes) {
  auto* const source = dynamic_cast<LaneSource*>(&device);
  return source != nullptr ? source->OpenLane(bytes) : OpenPlainLane(device, bytes);
}

}  // namespace reprise
