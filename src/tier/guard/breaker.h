// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace reprise {

// Breaker says whether one direction of a home (its reads, its writes) is used: not after a
// failure, until somebody has found that it works. One line in the log for each change.
//
// Thread safety: none.
class Breaker {
 public:
  static constexpr int64_t kPauseMaxMs = 60'000;

  // `what`: "reading state from redis://...".
  Breaker(std::string what, int64_t retry_ms) : what_(std::move(what)), retry_ms_(retry_ms) {}

  bool open() const { return open_; }

  // True: it was in use until now, and somebody has to find out when it works again. The first try
  // is after pause_ms(), which grows while nothing real succeeds.
  bool Fail(const Status& why) {
    if (std::exchange(open_, true)) return false;
    pause_ms_ = std::clamp(pause_ms_ * 2, retry_ms_, std::max(retry_ms_, kPauseMaxMs));
    ++changes_;
    Log(LogLevel::kWarning, what_ + " fails and is tried again later: " + why.message());
    return true;
  }
  // A try has found that it works.
  void Close() {
    if (!std::exchange(open_, false)) return;
    ++changes_;
    Log(LogLevel::kInfo, what_ + " works again");
  }
  // Something that was wanted has succeeded.
  void Succeed() {
    if (!open_) pause_ms_ = 0;
  }

  int64_t pause_ms() const { return pause_ms_; }
  uint64_t changes() const { return changes_; }

 private:
  const std::string what_;
  const int64_t retry_ms_;
  bool open_ = false;
  int64_t pause_ms_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace reprise
