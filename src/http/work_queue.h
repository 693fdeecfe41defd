// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace reprise::http {

// Threads that run tasks, shared out fairly.
//
// 1. Every task belongs to a share (a tenant). Shares with waiting tasks take turns, one task each;
//    within a share tasks run in the order they came. However many one tenant sends, another waits
//    for one task of it at most on each thread.
// 2. Heavy tasks (large bodies, grammars to compile, much text) have threads of their own, which
//    make way for all others when processors are scarce: a small request does not wait for heavy
//    ones, and neither does what computes. One share has all but one of these threads at most.
// 3. Quick tasks (what watches the server) have a thread of their own.
// (With a single thread there is nothing to divide.)
//
// Thread safety: all methods from any thread.
class WorkQueue {
 public:
  enum class Size { kQuick, kSmall, kHeavy };
  struct Task {
    std::string share;
    Size size = Size::kSmall;
    std::function<void()> run;
  };

  // So many for small and heavy tasks, half of them each.
  explicit WorkQueue(int thread_count);
  ~WorkQueue();  // stops

  // After Stop: drops the task.
  void Add(Task task);
  // Drops what waits and returns when what runs is done.
  void Stop();

 private:
  struct Waiting {
    uint64_t number = 0;  // of arrival
    std::function<void()> run;
  };
  struct Share {
    std::deque<Waiting> waiting[3];  // by size
    bool empty() const {
      return waiting[0].empty() && waiting[1].empty() && waiting[2].empty();
    }
  };

  // A thread takes the tasks of one size, or (the only one) of any.
  void Serve(std::optional<Size> size);
  std::optional<Task> TakeLocked(std::optional<Size> size);
  static std::deque<Waiting>* FindNext(Share* share, std::optional<Size> size, Size* found);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Share> shares_;  // those with waiting tasks
  std::list<std::string> turns_;         // their names; the first is next
  std::map<std::string, int> heavy_running_;  // by share
  int heavy_of_share_max_ = 1;
  uint64_t next_number_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reprise::http
