// SPDX-License-Identifier: Apache-2.0
#include "weights/progress.h"

#include "base/check.h"

namespace reprise {

void Progress::Advance(uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t before = done_.fetch_add(bytes, std::memory_order_relaxed);
  const uint64_t done = before + bytes;
  CHECK(done <= total_);
  if (before / step_ == done / step_ && done != total_) return;
  const std::lock_guard lock(mutex_);
  if (done <= shown_) return;  // another thread was faster and has shown more
  shown_ = done;
  if (listener_) listener_(done, total_);
}

}  // namespace reprise
