// SPDX-License-Identifier: Apache-2.0
#include "engine/mask_filler.h"

#include "base/check.h"

namespace reprise {

MaskFiller::~MaskFiller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskFiller::Start(std::vector<std::function<void()>> jobs) {
  if (jobs.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    CHECK(!busy_);
    jobs_ = std::move(jobs);
    busy_ = true;
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  changed_.notify_all();
}

void MaskFiller::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

void MaskFiller::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || busy_; });
    if (stop_) return;
    lock.unlock();
    for (const auto& job : jobs_) job();
    lock.lock();
    jobs_.clear();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace reprise
