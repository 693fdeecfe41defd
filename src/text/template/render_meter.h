// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace reprise {

// What all renders of one request use together: the prompt itself, and the searches for boundaries
// and breakpoints in it. A render pays for what it did, whether it succeeds or fails; so nothing a
// client sends makes many renders of what one may do.
//
// Thread safety: none; it belongs to the thread that renders. `abandoned` may read what other
// threads write.
class RenderMeter {
 public:
  using Clock = std::chrono::steady_clock;

  // `abandoned` says whether nobody waits for the result any more (the client left, the server
  // stops); it is asked every few thousand steps. Optional.
  RenderMeter(uint64_t steps_max, std::chrono::milliseconds time_max,
              std::function<bool()> abandoned = nullptr)
      : steps_max_(steps_max),
        deadline_(Clock::now() + time_max),
        abandoned_(std::move(abandoned)) {}

  void Charge(uint64_t steps) { steps_ += std::min(steps, steps_max_); }
  void CountRender() { ++renders_; }

  uint64_t steps() const { return steps_; }
  uint64_t steps_left() const { return steps_max_ - std::min(steps_max_, steps_); }
  int renders() const { return renders_; }  // begun, whatever became of them
  Clock::time_point deadline() const { return deadline_; }
  bool abandoned() const { return abandoned_ && abandoned_(); }
  // Whether another render would get nowhere.
  bool exhausted() const { return steps_left() == 0 || abandoned() || Clock::now() > deadline_; }

 private:
  const uint64_t steps_max_;
  const Clock::time_point deadline_;
  const std::function<bool()> abandoned_;
  uint64_t steps_ = 0;
  int renders_ = 0;
};

}  // namespace reprise
