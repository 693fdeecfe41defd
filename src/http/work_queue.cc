// SPDX-License-Identifier: Apache-2.0
#include "http/work_queue.h"

#include <algorithm>
#include <utility>

namespace reprise::http {

WorkQueue::WorkQueue(int thread_count) {
  const int count = std::max(1, thread_count);
  for (int i = 0; i < count; ++i) {
    const bool takes_heavy = i + 1 < count || count == 1;
    threads_.emplace_back([this, takes_heavy] { Serve(takes_heavy); });
  }
}

WorkQueue::~WorkQueue() { Stop(); }

void WorkQueue::Add(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  const auto [share, is_new] = shares_.try_emplace(task.share);
  if (is_new) turns_.push_back(task.share);
  (task.heavy ? share->second.heavy : share->second.light)
      .push_back({next_number_++, std::move(task.run)});
  changed_.notify_all();  // the one that wakes may not take heavy tasks
}

std::function<void()> WorkQueue::TakeLocked(bool takes_heavy) {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    const auto found = shares_.find(*turn);
    Share& share = found->second;
    const bool heavy =
        takes_heavy && !share.heavy.empty() &&
        (share.light.empty() || share.heavy.front().number < share.light.front().number);
    std::deque<Waiting>& tasks = heavy ? share.heavy : share.light;
    if (tasks.empty()) continue;
    std::function<void()> run = std::move(tasks.front().run);
    tasks.pop_front();
    turns_.splice(turns_.end(), turns_, turn);
    if (share.light.empty() && share.heavy.empty()) {
      turns_.pop_back();
      shares_.erase(found);
    }
    return run;
  }
  return nullptr;
}

void WorkQueue::Serve(bool takes_heavy) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    std::function<void()> run;
    changed_.wait(lock, [&] { return stopped_ || (run = TakeLocked(takes_heavy)) != nullptr; });
    if (run == nullptr) return;
    lock.unlock();
    run();
    run = nullptr;  // what it holds goes before the next is taken
    lock.lock();
  }
}

void WorkQueue::Stop() {
  std::map<std::string, Share> dropped;  // freed without the lock: tasks may hold much
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    dropped.swap(shares_);
    turns_.clear();
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace reprise::http
