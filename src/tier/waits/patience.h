// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace reprise {

// Patience says how long anybody waits for a home of records: half of its time-out to know what is
// there, half to get it, and once more for every kBytes of that and of what is read before it. What
// takes kHangs times as long does not go on at all.
struct Patience {
  static constexpr size_t kBytes = size_t{64} << 20;
  static constexpr int64_t kHangs = 4;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t timeout_ms = 0;  // 0: without a limit

  bool endless() const { return timeout_ms == 0; }
  // Until when a transfer of so many bytes that begins now is waited for.
  int64_t Until(int64_t now_ms, size_t bytes) const {
    if (endless()) return kNever;
    return now_ms + timeout_ms / 2 + timeout_ms * static_cast<int64_t>(bytes / kBytes);
  }
  // Whether a call of so many bytes that began then hangs.
  bool Hangs(int64_t since_ms, int64_t now_ms, uint64_t bytes) const {
    const auto more = static_cast<int64_t>(bytes / kBytes);
    return !endless() && since_ms != 0 && now_ms - since_ms >= timeout_ms * (kHangs + more);
  }
};

}  // namespace reprise
