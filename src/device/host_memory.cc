// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/buffer.h"
#include "device/memory.h"
#include "device/raw.h"

namespace reprise {
namespace {

class HostBuffer final : public DeviceBuffer::Owner {
 public:
  explicit HostBuffer(Buffer buffer) : buffer_(std::move(buffer)) {}
  std::byte* data() { return buffer_.data(); }

 private:
  Buffer buffer_;
};

// Small pages, so that what is given back in between is won.
class ReservedPages final : public DeviceBuffer::Owner {
 public:
  ~ReservedPages() override {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Status Map(size_t bytes) {
    if (bytes == 0) return OkStatus();
    void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
      return ResourceExhausted("cannot reserve " + std::to_string(bytes >> 20) +
                               " MiB of addresses");
    }
    data_ = static_cast<std::byte*>(mapping);
    bytes_ = bytes;
    return OkStatus();
  }
  std::byte* data() { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Pages come with the first touch, whether allocated or reserved.
class PagedMemory final : public DeviceMemory {
 public:
  Result<DeviceBuffer> Allocate(size_t bytes) override {
    REPRISE_ASSIGN(Buffer buffer, Buffer::Allocate(bytes));
    auto owner = std::make_unique<HostBuffer>(std::move(buffer));
    const DevicePtr<std::byte> data = PlaceAt(owner->data());
    return DeviceBuffer(std::move(owner), data, bytes);
  }
  Result<DeviceBuffer> Reserve(size_t bytes) override {
    auto owner = std::make_unique<ReservedPages>();
    REPRISE_TRY(owner->Map(bytes));
    const DevicePtr<std::byte> data = PlaceAt(owner->data());
    return DeviceBuffer(std::move(owner), data, bytes);
  }
  Status Commit(DevicePtr<std::byte>, size_t) override { return OkStatus(); }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    if (bytes != 0) CHECK(::madvise(Raw(begin), bytes, MADV_DONTNEED) == 0);
  }
  size_t page_bytes() const override { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

  void Upload(DevicePtr<std::byte> to, const void* from, size_t bytes) override {
    if (bytes != 0) std::memcpy(Raw(to), from, bytes);
  }
  void Download(void* to, DevicePtr<const std::byte> from, size_t bytes) override {
    if (bytes != 0) std::memcpy(to, Raw(from), bytes);
  }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    if (bytes != 0) std::memcpy(Raw(to), Raw(from), bytes);
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override {
    if (bytes != 0) std::memset(Raw(to), 0, bytes);
  }
  bool copies_by_caller() const override { return true; }
  void Synchronize() override {}
  DevicePtr<std::byte> Reach(void* host) override { return PlaceAt(static_cast<std::byte*>(host)); }

  Capacity capacity() const override {
    struct sysinfo info = {};
    if (::sysinfo(&info) != 0) return {};
    return {size_t{info.totalram} * info.mem_unit, size_t{info.freeram} * info.mem_unit};
  }
};

}  // namespace

DeviceMemory& HostMemory() {
  static PagedMemory memory;
  return memory;
}

}  // namespace reprise
