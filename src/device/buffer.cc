// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace reprise {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::Allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  if (bytes > SIZE_MAX - slack) return ResourceExhausted("cannot allocate that many bytes");
  void* mapping = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return ResourceExhausted("cannot allocate " + std::to_string(bytes) + " bytes of memory");
  }
  buffer.mapping_ = static_cast<std::byte*>(mapping);
  buffer.mapped_ = bytes + slack;
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = slack == 0 ? start : (start + kHugePage - 1) / kHugePage * kHugePage;
  buffer.data_ = buffer.mapping_ + (aligned - start);
  buffer.size_ = bytes;
  if (slack != 0) ::madvise(buffer.data_, bytes, MADV_HUGEPAGE);
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_);
}

void Buffer::Discard() {
  if (size_ != 0) ::madvise(data_, size_, MADV_DONTNEED);
}

}  // namespace reprise
