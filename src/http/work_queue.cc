// SPDX-License-Identifier: Apache-2.0
#include "http/work_queue.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <algorithm>
#include <utility>

namespace reprise::http {
namespace {

#ifdef __linux__
constexpr int kHeavyNice = 10;
#endif

}  // namespace

WorkQueue::WorkQueue(int thread_count) {
  const auto add = [this](std::optional<Size> size) {
    threads_.emplace_back([this, size] { Serve(size); });
  };
  if (thread_count <= 1) {
    add(std::nullopt);
    return;
  }
  const int heavy = thread_count - thread_count / 2;
  heavy_of_share_max_ = std::max(1, heavy - 1);
  add(Size::kQuick);
  for (int i = 0; i < thread_count; ++i) add(i < heavy ? Size::kHeavy : Size::kSmall);
}

WorkQueue::~WorkQueue() { Stop(); }

void WorkQueue::Add(Task task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  const auto [share, is_new] = shares_.try_emplace(task.share);
  if (is_new) turns_.push_back(task.share);
  share->second.waiting[static_cast<size_t>(task.size)].push_back(
      {next_number_++, std::move(task.run)});
  changed_.notify_all();  // the one that wakes may take tasks of another size
}

// The tasks of the share whose first one is next; null: none.
std::deque<WorkQueue::Waiting>* WorkQueue::FindNext(Share* share, std::optional<Size> size,
                                                    Size* found) {
  std::deque<Waiting>* next = nullptr;
  for (const Size each : {Size::kQuick, Size::kSmall, Size::kHeavy}) {
    std::deque<Waiting>& tasks = share->waiting[static_cast<size_t>(each)];
    if ((size && each != *size) || tasks.empty()) continue;
    if (next != nullptr && next->front().number < tasks.front().number) continue;
    next = &tasks;
    *found = each;
  }
  return next;
}

std::optional<WorkQueue::Task> WorkQueue::TakeLocked(std::optional<Size> size) {
  for (auto turn = turns_.begin(); turn != turns_.end(); ++turn) {
    const auto found = shares_.find(*turn);
    const auto running = heavy_running_.find(*turn);
    const bool has_its_part = size == Size::kHeavy && running != heavy_running_.end() &&
                              running->second >= heavy_of_share_max_;
    Task task{*turn, Size::kSmall, nullptr};
    std::deque<Waiting>* const tasks =
        has_its_part ? nullptr : FindNext(&found->second, size, &task.size);
    if (tasks == nullptr) continue;
    task.run = std::move(tasks->front().run);
    tasks->pop_front();
    turns_.splice(turns_.end(), turns_, turn);
    if (found->second.empty()) {
      turns_.pop_back();
      shares_.erase(found);
    }
    if (task.size == Size::kHeavy) ++heavy_running_[task.share];
    return task;
  }
  return std::nullopt;
}

void WorkQueue::Serve(std::optional<Size> size) {
#ifdef __linux__
  // Of this thread alone. If it fails, heavy tasks are as urgent as any.
  if (size == Size::kHeavy) (void)::setpriority(PRIO_PROCESS, 0, kHeavyNice);
#endif
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    std::optional<Task> task;
    changed_.wait(lock, [&] { return stopped_ || (task = TakeLocked(size)).has_value(); });
    if (!task) return;
    lock.unlock();
    task->run();
    task->run = nullptr;  // what it holds goes before the next is taken
    lock.lock();
    if (task->size != Size::kHeavy) continue;
    const auto running = heavy_running_.find(task->share);
    if (--running->second == 0) heavy_running_.erase(running);
    changed_.notify_all();  // another of this share may run
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
