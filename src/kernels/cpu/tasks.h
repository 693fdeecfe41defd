// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "device/thread_pool.h"

namespace reprise::cpu {

// Work below which waking the other threads costs more than it saves, in elements of a cheap
// element-wise op (about two microseconds).
inline constexpr int64_t kParallelElements = 16384;

// Calls function(begin, end) for ranges of rows, in parallel where there is enough to do.
// `row_elements` is the cost of a row in elements.
template <typename Function>
void ForRows(ThreadPool& pool, int64_t rows, int64_t row_elements, const Function& function) {
  if (rows * row_elements <= kParallelElements) {
    if (rows > 0) function(int64_t{0}, rows);
    return;
  }
  pool.ParallelFor(rows, 1, function);
}

// Calls function(task, thread) for every task in [0, count). Threads take the next task as they
// become free, so tasks may differ in cost; put the long ones first.
template <typename Function>
void ForTasks(ThreadPool& pool, int64_t count, int64_t total_elements, const Function& function) {
  if (count <= 1 || total_elements <= kParallelElements || pool.size() == 1) {
    for (int64_t task = 0; task < count; ++task) function(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  pool.Run([&](int thread) {
    for (int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < count;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      function(task, thread);
    }
  });
}

// Tasks [0, count) in one range for each thread: a thread takes its own in order, so that what it
// reads lies together and what comes next is known, and then what others have left.
class TaskRanges {
 public:
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };

  TaskRanges() = default;
  // `memory` has a range for each thread.
  TaskRanges(std::span<Range> memory, int64_t count) : ranges_(memory) {
    const int64_t threads = static_cast<int64_t>(memory.size());
    for (int64_t thread = 0; thread < threads; ++thread) {
      Range& range = ranges_[static_cast<size_t>(thread)];
      range.next.store(FirstOf(count, threads, thread), std::memory_order_relaxed);
      range.end = FirstOf(count, threads, thread + 1);
    }
  }

  // The first task of a thread's own range.
  static int64_t FirstOf(int64_t count, int64_t threads, int64_t thread) {
    return count * thread / threads;
  }

  // Calls function(task, following) until nothing is left. `following` is what this thread takes
  // next if nobody else does, or -1.
  template <typename Function>
  void Take(int thread, const Function& function) const {
    const int threads = static_cast<int>(ranges_.size());
    for (int i = 0; i < threads; ++i) {
      Range& range = ranges_[static_cast<size_t>((thread + i) % threads)];
      for (;;) {
        const int64_t task = range.next.fetch_add(1, std::memory_order_relaxed);
        if (task >= range.end) break;
        function(task, task + 1 < range.end ? task + 1 : -1);
      }
    }
  }

 private:
  std::span<Range> ranges_;
};

}  // namespace reprise::cpu
