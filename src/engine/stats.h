// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>

#include "cache/stats.h"
#include "engine/request.h"

namespace reprise {

// Counters of the engine since start and the state of its queues now: a copy, made after every
// step, that any thread may read.
struct EngineStats {
  static constexpr size_t kRecentMax = 64;

  uint64_t steps = 0;
  uint64_t rows = 0;  // tokens run through the model
  uint64_t rows_idle = 0;
  uint64_t requests_submitted = 0;  // of clients, like those below
  uint64_t requests_refused = 0;    // queue full
  uint64_t requests_displaced = 0;  // of those failed: made way in the queue for another tenant
  uint64_t requests_finished = 0;
  uint64_t requests_cancelled = 0;
  uint64_t requests_failed = 0;
  uint64_t idle_finished = 0;  // pieces of idle work
  uint64_t idle_dropped = 0;
  uint64_t preemptions = 0;
  uint64_t tokens_generated = 0;
  DraftCounts drafts;
  double busy_ms = 0;  // inside forward passes
  int32_t waiting = 0;
  int32_t running = 0;
  int32_t idle = 0;  // pieces of idle work at hand
  CacheStats cache;
  std::deque<Completion> recent;  // newest last
};

}  // namespace reprise
