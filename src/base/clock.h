// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace reprise {

// Time as the engine sees it: steady, in nanoseconds. Simulations put their own in its place.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;
  int64_t NowMs() const { return NowNs() / 1'000'000; }
};

class SteadyClock : public Clock {
 public:
  int64_t NowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// The one that servers go by.
inline const Clock& TheSteadyClock() {
  static const SteadyClock clock;
  return clock;
}

// Processor time of the calling thread, in seconds: what neighbours take is not counted. Good for
// the work of one thread; of others, only the caller's waiting is part of it.
inline double ThreadSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace reprise
