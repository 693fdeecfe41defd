// SPDX-License-Identifier: Apache-2.0
#include "device/scratch.h"

#include <algorithm>
#include <cstdint>
#include <string>
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
  if (current_ == chunk_count_ && !refused()) refusal_ = Grow(count);
  if (refused()) return Nowhere(count);
  Chunk& chunk = chunks_[current_];
  const DevicePtr<std::byte> memory = chunk.buffer.data() + int64_t(chunk.used);
  chunk.used += count;
  total_ += count;
  peak_ = std::max(peak_, total_);
  return memory;
}

DevicePtr<std::byte> ScratchArena::Nowhere(size_t count) {
  auto place = memory_->Reserve(std::max(count, kAlignment));
  CHECK(place.ok());  // addresses are not memory
  // Ops that compute while they are asked touch what they take themselves: pages, if any are left.
  (void)memory_->Commit(place->data(), std::max(count, kAlignment));
  nowhere_.push_back(std::move(*place));
  return nowhere_.back().data();
}

Status ScratchArena::TakeRefusal() {
  nowhere_.clear();
  return std::exchange(refusal_, OkStatus());
}

// Twice the last chunk, or what is needed if that is not to be had.
Status ScratchArena::Grow(size_t count) {
  CHECK(chunk_count_ < kChunkMax);
  const size_t last = chunk_count_ == 0 ? size_t{1} << 19 : chunks_[chunk_count_ - 1].buffer.size();
  auto buffer = memory_->Allocate(std::max(count, last * 2));
  if (!buffer.ok() && count < last * 2) buffer = memory_->Allocate(count);
  if (!buffer.ok()) {
    return buffer.status().Annotate("a step needs " + std::to_string(count >> 20) +
                                    " MiB more to compute in");
  }
  chunks_[chunk_count_++] = Chunk{std::move(*buffer), 0};
  return OkStatus();
}

// What fits into one chunk fits into it and those before.
Status ScratchArena::Provide(size_t bytes) {
  for (size_t i = current_; i < chunk_count_; ++i) {
    if (chunks_[i].buffer.size() - chunks_[i].used >= bytes) return OkStatus();
  }
  return Grow(bytes);
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
