// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "state/shares.h"
#include "tier/guard/day_budget.h"
#include "tier/path_id.h"

namespace reprise {

// DayShares divides what may be written a day among the namespaces that want to write: each has an
// equal share of it. A share is no limit: one that has used its own up may take what is left beyond
// the unused shares of the others.
//
// Thread safety: none. Costs: O(namespaces), at most kOwnersMax; those beyond share the last.
class DayShares {
 public:
  // Whether the namespace may write `bytes`, if `left` are left of a day's `most`.
  bool MayTake(const PathId& space, uint64_t bytes, double left, double most, int64_t now_ms) {
    Pass(most, now_ms);
    One& mine = Find(space, left / most, now_ms);
    const double share = most / static_cast<double>(ones_.size());
    const auto wanted = static_cast<double>(bytes);
    if (mine.used + wanted <= share) return true;
    double reserved = 0;
    for (const One& one : ones_) {
      if (&one != &mine) reserved += std::max(0.0, share - one.used);
    }
    return left - wanted >= reserved;
  }
  // REQUIRES: MayTake was asked for the namespace.
  void Take(const PathId& space, uint64_t bytes) { Known(space)->used += double(bytes); }
  void GiveBack(const PathId& space, uint64_t bytes) {
    if (One* one = Known(space)) one->used = std::max(0.0, one->used - double(bytes));
  }

 private:
  struct One {
    PathId space;
    double used = 0;  // of its share, which comes back evenly; more than that is not remembered
    int64_t asked_ms = 0;
  };

  // One that has not asked for a day has no share.
  void Pass(double most, int64_t now_ms) {
    most_ = most;
    const auto passed = static_cast<double>(std::max<int64_t>(0, now_ms - at_ms_));
    at_ms_ = std::max(at_ms_, now_ms);
    std::erase_if(ones_,
                  [&](const One& one) { return one.asked_ms + DayBudget::kDayMs < now_ms; });
    const double share = most / static_cast<double>(std::max<size_t>(1, ones_.size()));
    const double back = share * passed / static_cast<double>(DayBudget::kDayMs);
    for (One& one : ones_) one.used = std::clamp(one.used - back, 0.0, share);
  }
  One* Known(const PathId& space) {
    const auto one = std::find_if(ones_.begin(), ones_.end(),
                                  [&](const One& other) { return other.space == space; });
    if (one != ones_.end()) return &*one;
    return ones_.size() == kOwnersMax ? &ones_.back() : nullptr;
  }
  // One that is new has its share of what is left (`part` of the day's).
  One& Find(const PathId& space, double part, int64_t now_ms) {
    One* one = Known(space);
    if (one == nullptr) {
      one = &ones_.emplace_back(One{.space = space});
      one->used = most_ / static_cast<double>(ones_.size()) * (1 - part);
    }
    one->asked_ms = now_ms;
    return *one;
  }

  std::vector<One> ones_;
  double most_ = 0;
  int64_t at_ms_ = 0;
};

}  // namespace reprise
