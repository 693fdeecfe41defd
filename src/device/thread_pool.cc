// SPDX-License-Identifier: Apache-2.0
#include "device/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "device/processors.h"

namespace reprise {
namespace {

// About 50 microseconds: longer than any gap between two ops of a step, shorter than a scheduler
// tick.
constexpr int kSpins = 4000;
// The caller waits for its workers with patience: a worker that lost its CPU to another process
// must get it back, and a caller that spins on the same CPU would keep it away.
constexpr int kSpinsBeforeYield = 20000;

// A worker that shares its CPU gives it away between two ops before it is taken away within one:
// what it holds of an op nobody else can finish. A turn is shorter than what schedulers grant.
constexpr std::chrono::microseconds kTurn{700};

constexpr size_t kLine = 64;

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Bind(pthread_t thread, const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  // Refusal (a container without the right) costs speed, not correctness.
  static_cast<void>(::pthread_setaffinity_np(thread, sizeof set, &set));
}

}  // namespace

ThreadPool::ThreadPool(int thread_count)
    : thread_count_(thread_count > 0 ? thread_count : DefaultThreads(FindProcessors())),
      ahead_(size_t(thread_count_)) {
  const Processors processors = FindProcessors();
  for (int thread = 1; thread < thread_count_; ++thread) {
    threads_.emplace_back([this, thread] { Work(thread); });
    Bind(threads_.back().native_handle(), CpusOfThread(processors, thread_count_, thread));
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::RunErased(Erased call, const void* function) {
  if (thread_count_ == 1) return call(function, 0);
  call_ = call;
  function_ = function;
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  door_.store(uint64_t{generation} << 32 | kOpen, std::memory_order_release);
  // seq_cst pairs with the sleeper's increment: either it sees the new generation, or we see it
  // sleep.
  generation_.store(generation);
  if (sleepers_.load() != 0) generation_.notify_all();
  call(function, 0);
  uint64_t inside = door_.fetch_and(~kOpen, std::memory_order_acq_rel) & kInside;
  for (int spins = 0; inside != 0; ++spins) {
    if (spins < kSpinsBeforeYield) {
      Pause();
    } else {
      std::this_thread::yield();
    }
    inside = door_.load(std::memory_order_acquire) & kInside;
  }
}

// Until the generation is another than `seen`. What is expected is asked for a few lines at a time:
// the work that comes must not wait for it.
void ThreadPool::Wait(uint32_t seen, std::span<const std::byte>* expected) {
  constexpr size_t kAtOnce = 8 * kLine;
  int spins = 0;
  while (generation_.load(std::memory_order_acquire) == seen) {
    if (!expected->empty()) {
      const size_t bytes = std::min(expected->size(), kAtOnce);
      for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(expected->data() + at, 0, 2);
      *expected = expected->subspan(bytes);
    } else if (++spins < kSpins) {
      Pause();
    } else {
      sleepers_.fetch_add(1);
      generation_.wait(seen);
      sleepers_.fetch_sub(1);
    }
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  std::span<const std::byte> expected;
  auto turn = std::chrono::steady_clock::now();
  for (;;) {
    if (std::chrono::steady_clock::now() - turn >= kTurn) {
      std::this_thread::yield();
      turn = std::chrono::steady_clock::now();
    }
    Ahead& ahead = ahead_[size_t(thread)];
    const std::byte* const begin = ahead.begin.exchange(nullptr, std::memory_order_acquire);
    if (begin != nullptr) expected = {begin, ahead.bytes.load(std::memory_order_relaxed)};
    Wait(seen, &expected);
    if (stop_.load()) return;
    seen = generation_.load(std::memory_order_acquire);
    uint64_t door = door_.load(std::memory_order_acquire);
    bool entered = false;
    while (!entered && door >> 32 == seen && (door & kOpen) != 0) {
      entered = door_.compare_exchange_weak(door, door + 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire);
    }
    if (!entered) continue;  // too late: the others were quicker
    call_(function_, thread);
    door_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace reprise
