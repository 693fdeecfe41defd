// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "device/device_ptr.h"

namespace reprise {

// Memory of a device, given back when this ends. Move-only.
class DeviceBuffer {
 public:
  // Whatever has to be undone to give the memory back.
  class Owner {
   public:
    virtual ~Owner() = default;
  };

  DeviceBuffer() = default;
  DeviceBuffer(std::unique_ptr<Owner> owner, DevicePtr<std::byte> data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    owner_ = std::move(other.owner_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  DevicePtr<std::byte> data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<Owner> owner_;
  DevicePtr<std::byte> data_;
  size_t size_ = 0;
};

// The memory that a backend computes in, and the ways in and out of it. Copies and fills are
// ordered with the ops of the backend and with one another, as if each had ended before the next
// began.
//
// Thread safety: none; one thread loads, then the engine's thread calls.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Zeroed, aligned to 256 bytes (2 MiB when large). Fails with kResourceExhausted and the numbers.
  virtual Result<DeviceBuffer> Allocate(size_t bytes) = 0;

  // Addresses with nothing behind them, from the beginning of a page on. What is to be used is
  // committed first (the pages it touches; those that are there stay as they are, new ones are
  // zero). Whole pages can be given back: their contents are gone then.
  virtual Result<DeviceBuffer> Reserve(size_t bytes) = 0;
  virtual Status Commit(DevicePtr<std::byte> begin, size_t bytes) = 0;
  virtual void Discard(DevicePtr<std::byte> begin, size_t bytes) = 0;
  virtual size_t page_bytes() const = 0;

  // `from` may change as soon as Upload returns; `to` is there when Download returns.
  virtual void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) = 0;
  virtual void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) = 0;
  virtual void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) = 0;
  virtual void Zero(DevicePtr<std::byte> to, size_t bytes) = 0;
  // Whether copies, fills and Discard are done by the thread that calls, before they return, and
  // any thread may call them. (Not Discard of a UnitMemory.)
  virtual bool copies_by_caller() const { return false; }
  // Returns when everything asked for so far is done.
  virtual void Synchronize() = 0;

  // Memory of this process as the device sees it, null where it cannot reach it: results that are
  // wanted on the host anyway need no copy where it can.
  virtual DevicePtr<std::byte> Reach(void* host) = 0;

  struct Capacity {
    size_t total = 0;
    size_t free = 0;  // now
  };
  virtual Capacity capacity() const = 0;

  template <typename T>
  void UploadArray(DevicePtr<T> to, std::span<const T> from) {
    Upload(to.template As<std::byte>(), from.data(), from.size_bytes());
  }
  template <typename T>
  void DownloadArray(std::span<T> to, DevicePtr<const T> from) {
    Download(to.data(), from.template As<const std::byte>(), to.size_bytes());
  }
};

// The memory of this process. Has no state: one for all.
DeviceMemory& HostMemory();

}  // namespace reprise
