// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "device/memory.h"
#include "device/joined/peer_memory.h"
#include "kernels/rows.h"
#include "kernels/split/whereabouts.h"

namespace reprise {

// The memories of several devices that compute one model together: everything in it has one
// address, and a place on each of them. Whoever writes through it writes everywhere. What ops have
// written may be on some devices only (Whereabouts); whoever reads is given it from where it is.
//
// Nothing is behind an address itself: whoever follows one faults.
//
// Thread safety: as the memories have it.
class SplitMemory final : public DeviceMemory {
 public:
  // `sharing`: how many of them take from the memory that this one takes from, itself included.
  // They must outlive it.
  struct Part {
    DeviceMemory* memory = nullptr;
    int sharing = 1;
  };
  explicit SplitMemory(std::vector<Part> parts);

  int count() const { return int(parts_.size()); }
  DeviceMemory& part(int device) const { return *parts_[size_t(device)].memory; }
  // The calling thread works with that device from now on.
  void Use(int device) const {
    if (peers_[size_t(device)] != nullptr) peers_[size_t(device)]->Use();
  }
  Whereabouts& whereabouts() { return whereabouts_; }
  // The place on a device; null for null.
  template <typename T>
  DevicePtr<T> On(int device, DevicePtr<T> address) const {
    return Place(device, address.template As<const std::byte>()).template As<T>();
  }

  // Brings values to these devices. Copies are counted.
  void Gather(const ConstRows& x, DeviceSet where);
  // What has no address here: bytes of one device to another.
  void CopyBetween(int from, DevicePtr<const std::byte> source, int to, DevicePtr<std::byte> target,
                   size_t bytes) {
    CopyRuns(from, source, to, target, bytes, bytes, 1);
  }
  struct Count {
    size_t copies = 0;
    size_t bytes = 0;
  };
  const Count& gathered() const { return gathered_; }
  // Hears of weights that change or go: copies of parts of them are made elsewhere.
  void set_changed(std::function<void(const void* begin, size_t bytes)> changed) {
    changed_ = std::move(changed);
  }

  Result<DeviceBuffer> Allocate(size_t bytes) override;
  Result<DeviceBuffer> Reserve(size_t bytes) override;
  Status Commit(DevicePtr<std::byte> begin, size_t bytes) override;
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override;
  size_t page_bytes() const override { return part(0).page_bytes(); }
  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override;
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override;
  void Zero(DevicePtr<std::byte> to, size_t bytes) override;
  void Synchronize() override;
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Capacity capacity() const override;

 private:
  struct Range;
  class Owner;
  DevicePtr<std::byte> Place(int device, DevicePtr<const std::byte> address) const;
  using Make = std::function<Result<DeviceBuffer>(DeviceMemory&)>;
  Result<DeviceBuffer> MakeRange(size_t bytes, const Make& make);
  const Range* Find(DevicePtr<const std::byte> address) const;
  // `rows` runs of `width` bytes, `pitch` apart.
  void CopyRuns(int from, DevicePtr<const std::byte> source, int to, DevicePtr<std::byte> target,
                size_t width, size_t pitch, size_t rows);
  // Brings all that is in these bytes to these devices.
  void Settle(DevicePtr<const std::byte> begin, size_t bytes, DeviceSet where);
  void Changed(DevicePtr<std::byte> begin, size_t bytes);

  const std::vector<Part> parts_;
  std::vector<PeerMemory*> peers_;  // the same, or null
  Whereabouts whereabouts_;
  std::map<const std::byte*, const Range*> ranges_;  // by first address
  mutable const Range* last_ = nullptr;              // that was found
  Count gathered_;
  std::function<void(const void*, size_t)> changed_;
};

}  // namespace reprise
