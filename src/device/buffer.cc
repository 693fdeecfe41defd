// SPDX-License-Identifier: Apache-2.0
#include "device/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace reprise {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;

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

void* ScratchArena::Bytes(size_t count) {
  count = (count + kAlignment - 1) / kAlignment * kAlignment;
  while (current_ < chunk_count_) {
    Chunk& chunk = chunks_[current_];
    if (chunk.buffer.size() - chunk.used >= count) break;
    ++current_;
  }
  if (current_ == chunk_count_) {
    CHECK(chunk_count_ < kChunkMax);
    const size_t last =
        chunk_count_ == 0 ? size_t{1} << 19 : chunks_[chunk_count_ - 1].buffer.size();
    auto buffer = Buffer::Allocate(std::max(count, last * 2));
    CHECK(buffer.ok());
    chunks_[chunk_count_++] = Chunk{std::move(*buffer), 0};
  }
  Chunk& chunk = chunks_[current_];
  void* memory = chunk.buffer.data() + chunk.used;
  chunk.used += count;
  total_ += count;
  peak_ = std::max(peak_, total_);
  return memory;
}

void ScratchArena::Reset() {
  for (size_t i = 0; i < chunk_count_; ++i) chunks_[i].used = 0;
  current_ = 0;
  total_ = 0;
}

ScratchArena::Mark ScratchArena::mark() const {
  return {current_, current_ < chunk_count_ ? chunks_[current_].used : 0, total_};
}

void ScratchArena::Rewind(const Mark& mark) {
  for (size_t i = mark.chunk; i < chunk_count_; ++i)
    chunks_[i].used = i == mark.chunk ? mark.used : 0;
  current_ = mark.chunk;
  total_ = mark.total;
}

}  // namespace reprise
