// SPDX-License-Identifier: Apache-2.0
#include "cache/store/page_return.h"

#include <algorithm>

namespace reprise {

// What follows directly behind the last range becomes a part of it.
void PageReturn::Begin(size_t offset, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const bool idle = ranges_.empty();
    if (!idle && ranges_.back().end == offset) {
      ranges_.back().end += bytes;
    } else {
      ranges_.push_back({offset, offset + bytes});
    }
    if (!idle) return;
  }
  thread_.Post([this] { Work(); });
}

// One piece.
void PageReturn::Work() {
  size_t begin = 0, bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    begin = ranges_.front().begin;
    bytes = std::min(kPieceBytes, ranges_.front().end - begin);
  }
  memory_->Discard(base_ + static_cast<int64_t>(begin), bytes);
  {
    const std::lock_guard lock(mutex_);
    ranges_.front().begin += bytes;
    if (ranges_.front().begin == ranges_.front().end) ranges_.pop_front();
    if (ranges_.empty()) return;
  }
  thread_.Post([this] { Work(); });
}

bool PageReturn::Has(size_t begin, size_t end) {
  const std::lock_guard lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return range.begin < end && begin < range.end; });
}

void PageReturn::Await(size_t offset, size_t bytes) {
  if (Has(offset, offset + bytes)) thread_.WaitUntil([&] { return !Has(offset, offset + bytes); });
}

}  // namespace reprise
