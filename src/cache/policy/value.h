// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cache/stats.h"
#include "state/spec.h"

namespace reprise {

// The cost of computing tokens again, from the model's own figures.
class CostModel {
 public:
  explicit CostModel(const StateSpec& spec);
  // Of positions [from, to).
  double Recompute(int32_t from, int32_t to) const;

 private:
  double token_cost_;
  double token_cost_per_position_;
};

// What is known about an entry when its place in the eviction order is decided.
struct EntryFacts {
  double cost = 0;   // recompute cost of what would be lost
  double bytes = 0;  // memory that would be won
  int64_t used_ms = 0;
  uint32_t uses = 0;
  bool is_snapshot = false;
  SnapshotReason reason = SnapshotReason::kMessage;
  bool superseded = false;
};

// The eviction order: the entry with the smallest key goes first. A strategy of one method; the
// order must not change with time alone, so that keys can stand in a heap.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual double Key(const EntryFacts& facts) const = 0;
};

// What a byte saves, decayed since the entry was used:
//
//   worth(t) = weight * cost / bytes * 2^(-(t - used) / half_life)
//
// Halving is the one decay under which two entries never change places while both are left alone:
// log2 worth(t) = log2(weight * cost / bytes) + used / half_life - t / half_life, and the last term
// is the same for all. So the key is a constant, and a plain heap is exact.
class CostPerBytePolicy : public EvictionPolicy {
 public:
  // Ten minutes, the time within which most conversations go on (docs/cache.md has the traces).
  static constexpr double kHalfLifeMs = 600'000;

  explicit CostPerBytePolicy(double half_life_ms = kHalfLifeMs) : half_life_ms_(half_life_ms) {}
  double Key(const EntryFacts& facts) const override;

 private:
  double half_life_ms_;
};

// Least recently used, for comparison.
class LruPolicy : public EvictionPolicy {
 public:
  double Key(const EntryFacts& facts) const override { return static_cast<double>(facts.used_ms); }
};

}  // namespace reprise
