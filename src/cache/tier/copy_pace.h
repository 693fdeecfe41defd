// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "cache/tier/tier.h"

namespace reprise {

// CopyPace says when the engine's thread may copy a piece of what goes down. Between two steps of
// requests it may for 1/kShare of the time, whatever a copy and a step take, and saves nothing up
// but for one piece; at rest always. What others do with the copies on cores that steps want is
// charged, and paid off before the next piece. So steps are late by that share in the mean, and by
// the same one if they are short. Copies that a device does by itself need no pace.
//
// Thread safety: none.
class CopyPace {
 public:
  static constexpr int64_t kShare = 144;
  static constexpr size_t kPieceBytes = size_t{32} << 10;  // 5 to 15 us
  static constexpr int64_t kDebtMaxNs = 1'000'000;  // a thread that was displaced did not copy

  explicit CopyPace(const Clock& clock) : clock_(clock) {}

  // A Poll begins.
  void Begin(Tier::When when) {
    const int64_t now = clock_.NowNs();
    const int64_t earned = (now - last_ns_) / kShare;
    free_ = when == Tier::When::kAtRest;
    left_ns_ = free_ || last_ns_ == 0 ? 0 : std::min(left_ns_ + earned, std::max(earned, kPieceNs));
    last_ns_ = now;
  }
  // Processor time that a copy has cost elsewhere.
  void Charge(int64_t ns) {
    if (!free_) left_ns_ -= ns;
  }
  bool MayCopy() const { return free_ || left_ns_ > 0; }
  bool at_rest() const { return free_; }
  // REQUIRES: MayCopy().
  template <typename Copy>
  void Spend(const Copy& copy) {
    if (free_) return copy();
    const int64_t begin = clock_.NowNs();
    copy();
    left_ns_ = std::max(left_ns_ - (clock_.NowNs() - begin), -kDebtMaxNs);
  }

 private:
  static constexpr int64_t kPieceNs = 10'000;

  const Clock& clock_;
  bool free_ = false;
  int64_t last_ns_ = 0;  // of the Poll before
  int64_t left_ns_ = 0;
};

}  // namespace reprise
