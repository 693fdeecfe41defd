// SPDX-License-Identifier: Apache-2.0
#include "engine/mask_filler.h"

#include <chrono>

#include "base/check.h"
#include "base/clock.h"

namespace reprise {
namespace {

constexpr std::chrono::milliseconds kMoment{1};

}  // namespace

MaskFiller::~MaskFiller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (ahead_thread_.joinable()) ahead_thread_.join();
}

void MaskFiller::FillAhead(std::shared_ptr<MaskAhead> ahead) {
  {
    const std::lock_guard lock(mutex_);
    ahead_.push_back(std::move(ahead));
  }
  if (!ahead_thread_.joinable()) ahead_thread_ = std::thread([this] { LoopAhead(); });
  changed_.notify_all();
}

bool MaskFiller::AwaitAhead() {
  std::unique_lock lock(mutex_);
  if (ahead_.empty()) return false;
  const std::shared_ptr<MaskAhead> first = ahead_.front();
  changed_.wait_for(lock, kMoment, [&] { return first->done.load(); });
  return true;
}

void MaskFiller::LoopAhead() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !ahead_.empty(); });
    if (stop_) return;
    const std::shared_ptr<MaskAhead> ahead = ahead_.front();
    lock.unlock();
    const double begin = ThreadSeconds();
    ahead->status = ahead->constraint->Fill(&ahead->mask);
    ahead->seconds = ThreadSeconds() - begin;
    ahead->done = true;
    lock.lock();
    ahead_.pop_front();
    changed_.notify_all();
  }
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
