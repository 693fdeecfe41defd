// SPDX-License-Identifier: Apache-2.0
#include "device/scratch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace reprise {

DevicePtr<std::byte> ScratchArena::Bytes(size_t count) {
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
    auto buffer = memory_->Allocate(std::max(count, last * 2));
    CHECK(buffer.ok());
    chunks_[chunk_count_++] = Chunk{std::move(*buffer), 0};
  }
  Chunk& chunk = chunks_[current_];
  const DevicePtr<std::byte> memory = chunk.buffer.data() + int64_t(chunk.used);
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
