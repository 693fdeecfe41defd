// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace reprise::http {

// Threads that run tasks, shared out fairly.
//
// 1. Every task belongs to a share (a tenant). Shares with waiting tasks take turns, one task each;
//    within a share tasks run in the order they came. Of the threads for a size one share has all
//    but one at most: however many tasks one tenant sends, another finds a thread.
// 2. Heavy tasks (large bodies, grammars to compile, much text) have threads of their own, which
//    make way for all others when processors are scarce: a small request does not wait for heavy
//    ones, and neither does what computes.
// 3. Quick tasks (what watches the server) have a thread of their own.
// 4. Sizes have nothing in common, locks included: a heavy thread that has lost its processor keeps
//    no small task waiting. A task wakes one thread that may run it, and no other.
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

  // How often a thread woke up, to take a task or to find none.
  uint64_t wakes() const { return wakes_; }

 private:
  using Run = std::function<void()>;
  // Tasks of one size, or (the only one) of any.
  struct Lane {
    int of_share_max = 0;  // that run at a time
    std::mutex mutex;      // guards what follows
    std::condition_variable changed;
    std::map<std::string, std::deque<Run>> waiting;  // by share: those with waiting tasks
    std::list<std::string> turns;                    // their names; the first is next
    std::map<std::string, int> running;              // by share
    bool stopped = false;
  };
  struct Taken {
    std::string share;
    Run run;
  };

  Lane& LaneOf(Size size) { return *lanes_[single_ ? 0 : static_cast<size_t>(size)]; }
  void Serve(Lane* lane, bool heavy);
  static std::optional<Taken> TakeLocked(Lane* lane);

  const bool single_;
  std::unique_ptr<Lane> lanes_[3];  // by size
  std::atomic<uint64_t> wakes_{0};
  std::vector<std::thread> threads_;
};

}  // namespace reprise::http
