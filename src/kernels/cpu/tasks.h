// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

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

}  // namespace reprise::cpu
