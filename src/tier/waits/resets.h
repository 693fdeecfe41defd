// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tier/path_id.h"

namespace reprise {

// Resets is which namespaces of a shared home are being forgotten: nobody finds anything of them
// until that is done. What could not be removed is tried again, less and less often. That says
// nothing of other writes: it takes a command that the server may not be allowed.
//
// Thread safety: none. An empty id stands for all namespaces.
class Resets {
 public:
  static constexpr int64_t kPauseMaxMs = 600'000;

  explicit Resets(int64_t retry_ms) : retry_ms_(retry_ms) {}

  void Begin(const PathId& space) { under_way_.push_back(space); }
  bool Covers(const PathId& space) const {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [&](const PathId& one) { return one.empty() || one == space; });
  }
  void Succeed(const PathId& space) {
    pause_ms_ = 0;
    const auto at = std::find(under_way_.begin(), under_way_.end(), space);
    if (at != under_way_.end()) under_way_.erase(at);
  }
  // True: it is the first that fails, which people are to know.
  bool Fail(const PathId& space, int64_t now_ms) {
    const bool first = pause_ms_ == 0;
    failed_.push_back(space);
    pause_ms_ = std::min(kPauseMaxMs, std::max(retry_ms_, 2 * pause_ms_));
    pause_ms_ = std::max<int64_t>(1, pause_ms_);
    again_at_ms_ = now_ms + pause_ms_;
    return first;
  }
  // Those that are to be tried again now.
  std::vector<PathId> TakeDue(int64_t now_ms) {
    if (failed_.empty() || now_ms < again_at_ms_) return {};
    return std::exchange(failed_, {});
  }

 private:
  const int64_t retry_ms_;
  std::vector<PathId> under_way_;
  std::vector<PathId> failed_;  // of those
  int64_t again_at_ms_ = 0;
  int64_t pause_ms_ = 0;
};

}  // namespace reprise
