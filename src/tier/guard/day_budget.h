// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace reprise {

// DayBudget is what may be written a day: it comes back evenly, and at most a day's worth is saved.
//
// Thread safety: none.
class DayBudget {
 public:
  static constexpr int64_t kDayMs = int64_t{24} * 3600 * 1000;

  // 0: no limit.
  explicit DayBudget(uint64_t bytes_max) : most_(static_cast<double>(bytes_max)), left_(most_) {}

  // So much was written less than a day before.
  void Begin(uint64_t written, int64_t now_ms) {
    left_ = std::max(0.0, most_ - static_cast<double>(written));
    at_ms_ = now_ms;
  }
  bool Take(uint64_t bytes, int64_t now_ms) {
    if (most_ == 0) return true;
    Grow(now_ms);
    if (static_cast<double>(bytes) > left_) return false;
    left_ -= static_cast<double>(bytes);
    return true;
  }
  // Taken, and not written after all.
  void GiveBack(uint64_t bytes) { left_ = std::min(most_, left_ + static_cast<double>(bytes)); }
  double Left(int64_t now_ms) {
    Grow(now_ms);
    return left_;
  }
  // Of the last day, as if it had come at once.
  uint64_t Written(int64_t now_ms) {
    Grow(now_ms);
    return static_cast<uint64_t>(most_ - left_);
  }

 private:
  // A clock that goes back gives nothing.
  void Grow(int64_t now_ms) {
    const auto passed = static_cast<double>(std::max<int64_t>(0, now_ms - at_ms_));
    left_ = std::min(most_, left_ + most_ * passed / static_cast<double>(kDayMs));
    at_ms_ = std::max(at_ms_, now_ms);
  }

  const double most_;
  double left_;
  int64_t at_ms_ = 0;
};

}  // namespace reprise
