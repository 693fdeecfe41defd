// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace reprise {

// Threads that run one function together. The caller is thread 0; the others (bound to what
// CpusOfThread of device/processors.h says) wait for work: they spin for a short while (the next op
// of a step comes within microseconds), then sleep in the kernel, so an idle server costs no CPU
// and a busy neighbour is not starved by spinning.
//
// Results must not depend on the number of threads or on which thread does what: an op divides its
// *output elements* among threads and never a reduction.
//
// Thread safety: Run is called by one thread at a time (the engine's).
// Costs: Run with nothing to do takes about a microsecond on two cores (bench: thread_pool_bench).
class ThreadPool {
 public:
  // 0 means one per core that this process may use: DefaultThreads of device/processors.h.
  explicit ThreadPool(int thread_count = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return thread_count_; }

  // What worker `thread` reads first in a later Run: while it waits after the next one, it asks for
  // that memory, so that the bus has no rest between two ops. A hint: nothing is read, and any
  // address will do.
  void Expect(int thread, const std::byte* begin, size_t bytes) {
    Ahead& ahead = ahead_[size_t(thread)];
    ahead.bytes.store(bytes, std::memory_order_relaxed);
    ahead.begin.store(begin, std::memory_order_release);
  }

  // Calls function(0) on this thread and function(thread) on every worker that is there in time,
  // and returns when all who began are done. A worker that has lost its CPU to another process is
  // not waited for: so `function` must take its work from a common counter until none is left, and
  // the calling thread can do all of it alone. Everything written by the caller before is visible
  // to the workers, and their writes to the caller after.
  template <typename Function>
  void Run(const Function& function) {
    RunErased([](const void* f, int thread) { (*static_cast<const Function*>(f))(thread); },
              &function);
  }

  // Divides [0, count) into contiguous ranges that begin at multiples of `grain` and calls
  // function(begin, end) for each, on whichever thread is free. Small counts run on the calling
  // thread alone.
  template <typename Function>
  void ParallelFor(int64_t count, int64_t grain, const Function& function) {
    if (count <= grain || thread_count_ == 1) {
      if (count > 0) function(int64_t{0}, count);
      return;
    }
    // A few ranges per thread even out what threads get done.
    const int64_t parts = int64_t{thread_count_} * 4;
    const int64_t step = ((count + parts - 1) / parts + grain - 1) / grain * grain;
    std::atomic<int64_t> next{0};
    Run([&](int) {
      for (;;) {
        const int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
        if (begin >= count) return;
        function(begin, begin + step < count ? begin + step : count);
      }
    });
  }

 private:
  using Erased = void (*)(const void* function, int thread);
  // What a worker expects; null: nothing new.
  struct alignas(64) Ahead {
    std::atomic<const std::byte*> begin{nullptr};
    std::atomic<size_t> bytes{0};
  };

  void RunErased(Erased call, const void* function);
  void Work(int thread);
  void Wait(uint32_t seen, std::span<const std::byte>* expected);

  const int thread_count_;
  Erased call_ = nullptr;
  const void* function_ = nullptr;
  // Each on its own cache line: one is written by the caller, the other by every worker.
  alignas(64) std::atomic<uint32_t> generation_{0};  // counts Run calls
  // The door of a generation: its number in the upper half, then whether it is open, then how many
  // workers are inside. Workers enter only while it is open and it is the one they came for, so
  // call_ and function_ cannot change under them.
  alignas(64) std::atomic<uint64_t> door_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<Ahead> ahead_;  // [thread_count_]
  std::vector<std::thread> threads_;
};

}  // namespace reprise
