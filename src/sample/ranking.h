// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/reference/choice.h"

namespace reprise {

namespace cpu {
struct KernelTable;
}

// The largest of the values that are numbers; -inf if none is.
float Largest(std::span<const float> values);

// Ranking has the tokens of one distribution in order, as kernels/reference/choice.h says, and
// sorts only the places that somebody looks at: a filter or a draw finds its bucket by counts and
// sums and sorts that one alone.
//
// Thread safety: none. Memory is kept from one distribution to the next.
// Costs: Rank O(vocabulary); filters and At O(vocabulary) at most, to gather a bucket, and the
// sorting of it.
class Ranking {
 public:
  // REQUIRES: temperature > 0. `logits` stay as they are until the last call.
  void Rank(const cpu::KernelTable& table, std::span<const float> logits, float temperature);

  uint64_t mass() const { return mass_; }  // of those that are kept; 0: none has a weight

  // REQUIRES: mass() > 0.
  void KeepCount(size_t count);   // top-k. REQUIRES: count > 0
  void KeepMass(double share);    // top-p
  void KeepNear(float distance);  // min-p. REQUIRES: distance >= 0
  // XTC: of the tokens with at least this share of the mass that is kept, all but the last one go.
  // The last call before At.
  void DropLikely(float share);
  int32_t At(double share) const;  // the token at this share of the mass that is kept, in [0, 1)

  struct Kept {
    int32_t token;
    uint64_t weight;
  };
  // Those with at least this weight, in order.
  std::vector<Kept> KeptFrom(uint64_t weight) const;

 private:
  static constexpr size_t kBuckets = reference::kChoiceBuckets;

  struct Bucket {
    uint32_t count = 0;
    uint64_t mass = 0;
  };
  struct Place {
    float logit;
    int32_t token;
  };
  struct Cut {
    int32_t token = 0;  // the last one before it
    size_t count = 0;   // of those before it
    uint64_t mass = 0;
  };

  uint64_t WeightOf(int32_t token) const;
  Cut CutAtMass(uint64_t wanted) const;  // the first that has as much
  std::span<const Place> Sorted(size_t bucket) const;
  static void Sort(std::vector<Place>* places);

  std::span<const float> logits_;
  float largest_ = 0;
  float temperature_ = 1;
  std::vector<float> exps_;          // [vocab] e^-distance
  std::vector<uint16_t> bucket_of_;  // [vocab]
  std::array<Bucket, kBuckets> buckets_;
  size_t count_ = 0;  // of those that are kept
  uint64_t mass_ = 0;
  uint64_t dropped_ = 0;  // of mass_: its beginning
  mutable std::vector<Place> sorted_;
  mutable size_t sorted_bucket_ = kBuckets;  // kBuckets: none
};

}  // namespace reprise
