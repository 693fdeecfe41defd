// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace reprise {

// The one order of sequences: who is started first, who keeps its place and its memory when there
// is too little. Priority comes first. Among equals, tenants that hold less than their share go
// before those that hold all of it; then turns of tenants alternate; then arrival decides. With one
// tenant that is priority, then arrival.
struct Rank {
  int32_t priority = 0;     // higher first
  bool over_share = false;  // its tenant has its share without it, or more than that with it
  double turn = 0;          // lower first
  uint64_t arrival = 0;     // lower first

  friend bool operator<(const Rank& a, const Rank& b) {  // a goes first
    return std::tie(b.priority, a.over_share, a.turn, a.arrival) <
           std::tie(a.priority, b.over_share, b.turn, b.arrival);
  }
};

// Whether one that runs makes way for one that waits. Having come later is no reason: it would be
// sent back and forth.
inline bool Yields(const Rank& running, const Rank& waiting) {
  if (running.priority != waiting.priority) return running.priority < waiting.priority;
  return running.over_share && !waiting.over_share;
}

// A tenant among those that have requests here: what it holds, and when it is its turn.
struct TenantLoad {
  int32_t weight = 1;  // of its share
  int32_t waiting = 0;
  int32_t running = 0;
  double next_turn = 0;  // of its next request; a request takes 1 / weight turns
  int64_t left_ms = 0;   // when its last request here ended

  bool present() const { return waiting + running > 0; }
};

// What is due to a tenant of `weight` when `places` are divided among tenants of `weights` in sum:
// at least one.
inline int32_t ShareOf(int32_t places, int32_t weight, int64_t weights) {
  return static_cast<int32_t>(
      std::max<int64_t>(1, int64_t{places} * weight / std::max<int64_t>(weights, weight)));
}

}  // namespace reprise
