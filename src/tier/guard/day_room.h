// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tier/guard/day_budget.h"
#include "tier/guard/day_shares.h"

namespace reprise {

// DayRoom is what may be written a day, for all (day_budget.h) and for each namespace
// (day_shares.h).
//
// Thread safety: none.
class DayRoom {
 public:
  // 0: no limit.
  explicit DayRoom(uint64_t bytes_max)
      : most_(static_cast<double>(bytes_max)), budget_(bytes_max) {}

  bool bounded() const { return most_ > 0; }
  // So much was written less than a day before.
  void Begin(uint64_t written, int64_t now_ms) { budget_.Begin(written, now_ms); }

  // Takes the bytes, if the share of the namespace allows it.
  bool Take(const PathId& space, uint64_t bytes, int64_t now_ms) {
    if (!bounded()) return true;
    if (!shares_.MayTake(space, bytes, budget_.Left(now_ms), most_, now_ms)) return false;
    if (!budget_.Take(bytes, now_ms)) return false;
    shares_.Take(space, bytes);
    return true;
  }
  // Taken, and not written after all.
  void GiveBack(const PathId& space, uint64_t bytes) {
    budget_.GiveBack(bytes);
    shares_.GiveBack(space, bytes);
  }
  // Of the last day, as if it had come at once.
  uint64_t Written(int64_t now_ms) { return budget_.Written(now_ms); }

 private:
  const double most_;
  DayBudget budget_;
  DayShares shares_;
};

}  // namespace reprise
