// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace reprise::http {

// Threads that run tasks, shared out fairly.
//
// 1. Every task belongs to a share (a tenant). Shares with waiting tasks take turns, one task each;
//    within a share tasks run in the order they came. However many one tenant sends, another waits
//    for one task of it at most on each thread.
// 2. Heavy tasks (requests with large bodies) have threads of their own, which make way for all
//    others when processors are scarce: a small request does not wait for large ones, and neither
//    does what computes. (With a single thread there is nothing to divide.)
//
// Thread safety: all methods from any thread.
class WorkQueue {
 public:
  struct Task {
    std::string share;
    bool heavy = false;
    std::function<void()> run;
  };

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
    std::deque<Waiting> light;
    std::deque<Waiting> heavy;
  };

  // Which tasks a thread takes.
  enum class Kind { kAll, kLight, kHeavy };
  void Serve(Kind kind);
  std::function<void()> TakeLocked(Kind kind);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Share> shares_;  // those with waiting tasks
  std::list<std::string> turns_;         // their names; the first is next
  uint64_t next_number_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reprise::http
