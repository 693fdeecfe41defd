// SPDX-License-Identifier: Apache-2.0
#include "http/work_queue.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <utility>

namespace reprise::http {
namespace {

#ifdef __linux__
constexpr int kHeavyNice = 5;
#endif

}  // namespace

WorkQueue::WorkQueue(int thread_count) {
  if (thread_count <= 1) threads_.emplace_back([this] { Serve(Kind::kAll); });
  for (int i = 0; thread_count > 1 && i < thread_count; ++i) {
    const Kind kind = i < thread_count / 2 ? Kind::kLight : Kind::kHeavy;
    threads_.emplace_back([this, kind] { Serve(kind); });
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

std::function<void()> WorkQueue::TakeLocked(Kind kind) {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    const auto found = shares_.find(*turn);
    Share& share = found->second;
    const bool heavy =
        kind == Kind::kHeavy ||
        (kind == Kind::kAll && !share.heavy.empty() &&
         (share.light.empty() || share.heavy.front().number < share.light.front().number));
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

void WorkQueue::Serve(Kind kind) {
#ifdef __linux__
  // Of this thread alone. If it fails, heavy tasks are as urgent as any.
  if (kind == Kind::kHeavy) (void)::setpriority(PRIO_PROCESS, 0, kHeavyNice);
#endif
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    std::function<void()> run;
    changed_.wait(lock, [&] { return stopped_ || (run = TakeLocked(kind)) != nullptr; });
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
