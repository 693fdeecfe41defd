// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "device/memory.h"
#include "device/raw.h"
#include "kernels/op_context.h"

namespace reprise {

// Memory of this process that can be read and written by ops of its own device and by copies alone:
// between them it is closed, so an op of another device that reaches into it faults. It makes
// devices of one CPU as good as apart: for proofs (docs/devices.md), not for speed.
//
//   ClosedMemory memory;   the context of its device: {&backend, &scratch, &memory}
//
// Thread safety: none, but that the threads of an op may use it while that op runs.
class ClosedMemory final : public DeviceMemory, public OpObserver {
 public:
  Result<DeviceBuffer> Allocate(size_t bytes) override {
    void* const mapped = ::mmap(nullptr, std::max<size_t>(bytes, 1), protection_,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return ResourceExhausted("there are no addresses left");
    auto* const data = static_cast<std::byte*>(mapped);
    mappings_[data] = std::max<size_t>(bytes, 1);
    return DeviceBuffer(std::make_unique<Mapping>(this, data), PlaceAt(data), bytes);
  }
  Result<DeviceBuffer> Reserve(size_t bytes) override { return Allocate(bytes); }
  Status Commit(DevicePtr<std::byte>, size_t) override { return OkStatus(); }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    if (bytes != 0) CHECK(::madvise(Raw(begin), bytes, MADV_DONTNEED) == 0);
  }
  size_t page_bytes() const override { return HostMemory().page_bytes(); }

  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    Begin("upload");
    HostMemory().Upload(to, from, bytes);
    End();
  }
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override {
    Begin("download");
    HostMemory().Download(to, from, bytes);
    End();
  }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    Begin("copy");
    HostMemory().Copy(to, from, bytes);
    End();
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override {
    Begin("zero");
    HostMemory().Zero(to, bytes);
    End();
  }
  void Synchronize() override {}
  DevicePtr<std::byte> Reach(void*) override { return nullptr; }
  Capacity capacity() const override { return HostMemory().capacity(); }

  void Begin(std::string_view) override { Protect(PROT_READ | PROT_WRITE); }
  void End() override {
    ++ops_;
    Protect(PROT_NONE);
  }
  size_t ops() const { return ops_; }  // and copies, so far

 private:
  class Mapping final : public DeviceBuffer::Owner {
   public:
    Mapping(ClosedMemory* memory, std::byte* data) : memory_(memory), data_(data) {}
    ~Mapping() override {
      ::munmap(data_, memory_->mappings_[data_]);
      memory_->mappings_.erase(data_);
    }

   private:
    ClosedMemory* const memory_;
    std::byte* const data_;
  };
  void Protect(int protection) {
    protection_ = protection;
    for (const auto& [data, bytes] : mappings_) CHECK(::mprotect(data, bytes, protection) == 0);
  }

  std::map<std::byte*, size_t> mappings_;
  int protection_ = PROT_NONE;
  size_t ops_ = 0;
};

}  // namespace reprise
