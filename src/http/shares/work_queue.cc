// SPDX-License-Identifier: Apache-2.0
#include "http/shares/work_queue.h"

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

WorkQueue::WorkQueue(int thread_count) : single_(thread_count <= 1) {
  const auto add = [this](Size size, int threads) {
    std::unique_ptr<Lane>& lane = lanes_[static_cast<size_t>(size)];
    lane = std::make_unique<Lane>();
    lane->of_share_max = std::max(1, threads - 1);
    const bool heavy = size == Size::kHeavy;
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, lane = lane.get(), heavy] { Serve(lane, heavy); });
    }
  };
  add(Size::kQuick, 1);
  if (single_) return;
  add(Size::kHeavy, thread_count - thread_count / 2);
  add(Size::kSmall, thread_count / 2);
}

WorkQueue::~WorkQueue() { Stop(); }

void WorkQueue::Add(Task task) {
  Lane& lane = LaneOf(task.size);
  {
    const std::lock_guard<std::mutex> lock(lane.mutex);
    if (lane.stopped) return;
    const auto [share, is_new] = lane.waiting.try_emplace(task.share);
    if (is_new) lane.turns.push_back(task.share);
    share->second.push_back(std::move(task.run));
  }
  lane.changed.notify_one();
}

std::optional<WorkQueue::Taken> WorkQueue::TakeLocked(Lane* lane) {
  for (auto turn = lane->turns.begin(); turn != lane->turns.end(); ++turn) {
    int& running = lane->running[*turn];
    if (running >= lane->of_share_max) continue;
    const auto share = lane->waiting.find(*turn);
    Taken taken{*turn, std::move(share->second.front())};
    ++running;
    share->second.pop_front();
    if (share->second.empty()) {
      lane->waiting.erase(share);
      lane->turns.erase(turn);
    } else {
      lane->turns.splice(lane->turns.end(), lane->turns, turn);
    }
    return taken;
  }
  return std::nullopt;
}

void WorkQueue::Serve(Lane* lane, bool heavy) {
#ifdef __linux__
  // Of this thread alone. If it fails, heavy tasks are as urgent as any.
  if (heavy) (void)::setpriority(PRIO_PROCESS, 0, kHeavyNice);
#endif
  std::unique_lock<std::mutex> lock(lane->mutex);
  while (true) {
    std::optional<Taken> taken;
    while (!lane->stopped && !(taken = TakeLocked(lane))) {
      lane->changed.wait(lock);
      ++wakes_;
    }
    if (!taken) return;
    lock.unlock();
    taken->run();
    taken->run = nullptr;  // what it holds goes before the next is taken
    lock.lock();
    const auto running = lane->running.find(taken->share);
    const bool waited =
        running->second == lane->of_share_max && lane->waiting.contains(taken->share);
    if (--running->second == 0) lane->running.erase(running);
    if (waited) lane->changed.notify_one();  // one more of this share may run
  }
}

void WorkQueue::Stop() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane == nullptr) continue;
    std::map<std::string, std::deque<Run>> dropped;  // freed without the lock: tasks may hold much
    const std::lock_guard<std::mutex> lock(lane->mutex);
    lane->stopped = true;
    dropped.swap(lane->waiting);
    lane->turns.clear();
    lane->changed.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace reprise::http
