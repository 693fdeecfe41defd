// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/disguised_memory.h"
#include "device/raw.h"

namespace reprise {

// For tests: memory of which there is less than was promised. Reserved pages cannot be touched
// until they are committed, and only so many can be at a time.
class ScarceMemory final : public DisguisedMemory {
 public:
  // Pages of so many bytes, a multiple of the machine's.
  explicit ScarceMemory(size_t bytes, size_t page_bytes = 65536)
      : page_(page_bytes), bytes_max_(bytes) {}

  void set_bytes(size_t bytes) { bytes_max_ = bytes; }
  size_t committed_bytes() const { return pages_.size() * page_; }
  size_t most_bytes() const { return most_; }
  int commits() const { return commits_; }  // calls of it

  // Of each allocation.
  void set_allocations_max(size_t bytes) { allocation_max_ = bytes; }

  Result<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes > allocation_max_) return ResourceExhausted("the device has no more");
    return HostMemory().Allocate(bytes);
  }
  Result<DeviceBuffer> Reserve(size_t bytes) override {
    const size_t mapped_bytes = bytes + page_;  // to begin with a page
    void* mapped = ::mmap(nullptr, mapped_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mapped != MAP_FAILED);
    auto* const begin = static_cast<std::byte*>(mapped);
    return DeviceBuffer(std::make_unique<Mapping>(this, begin, mapped_bytes),
                        PlaceAt(PageOf(begin + page_ - 1)), bytes);
  }
  Status Commit(DevicePtr<std::byte> begin, size_t bytes) override {
    ++commits_;
    for (std::byte* page = PageOf(Raw(begin)); page < Raw(begin) + bytes; page += page_) {
      if (pages_.contains(page)) continue;
      if (committed_bytes() + page_ > bytes_max_) {
        return ResourceExhausted("the device has no more");
      }
      CHECK(::mprotect(page, page_, PROT_READ | PROT_WRITE) == 0);
      pages_.insert(page);
      most_ = std::max(most_, committed_bytes());
    }
    return OkStatus();
  }
  void Discard(DevicePtr<std::byte> begin, size_t bytes) override {
    for (std::byte* page = PageOf(Raw(begin) + page_ - 1); page + page_ <= Raw(begin) + bytes;
         page += page_) {
      if (pages_.erase(page) == 0) continue;
      CHECK(::madvise(page, page_, MADV_DONTNEED) == 0);
      CHECK(::mprotect(page, page_, PROT_NONE) == 0);
    }
  }
  size_t page_bytes() const override { return page_; }

  Capacity capacity() const override { return {bytes_max_, bytes_max_ - committed_bytes()}; }

 private:
  struct Mapping final : DeviceBuffer::Owner {
    Mapping(ScarceMemory* memory, std::byte* place, size_t size)
        : owner(memory), data(place), bytes(size) {}
    ~Mapping() override {
      owner->pages_.erase(owner->pages_.lower_bound(data), owner->pages_.lower_bound(data + bytes));
      ::munmap(data, bytes);
    }
    ScarceMemory* owner;
    std::byte* data;
    size_t bytes;
  };

  std::byte* PageOf(std::byte* address) const {
    return address - reinterpret_cast<uintptr_t>(address) % page_;
  }

  const size_t page_;
  size_t bytes_max_;
  size_t allocation_max_ = SIZE_MAX;
  size_t most_ = 0;
  int commits_ = 0;
  std::set<std::byte*> pages_;
};

}  // namespace reprise
