// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

namespace cpu {
struct KernelTable;
}

// The largest of the values that are numbers; -inf if none is.
float Largest(std::span<const float> values);

// Ranking has the tokens of one distribution in order, the most likely first (ties: the lower token
// first), and sorts only the places that somebody looks at. Tokens fall into buckets by the
// distance of their logit from the best one; a filter or a draw finds its bucket by counts and sums
// and sorts that one alone. Filters keep a beginning of the order; it is never empty.
//
// Thread safety: none. Memory is kept from one distribution to the next.
// Costs: Rank O(vocabulary); filters and At O(vocabulary) at most, to gather a bucket, and the
// sorting of it. All is in one order, so the same on every CPU.
class Ranking {
 public:
  // Weights are e^((logit - best) / temperature), up to a common factor. Tokens that are further
  // than 30 temperatures from the best are left out: e^-30 of its weight each, less in sum than the
  // rounding of the total for any vocabulary that exists. REQUIRES: temperature > 0; no NaN, and
  // one logit that is not -inf. `logits` stay as they are until the last call.
  void Rank(const cpu::KernelTable& table, std::span<const float> logits, float temperature);

  void KeepCount(size_t count);  // top-k. REQUIRES: count > 0
  void KeepMass(double share);   // top-p: as few as have this share of the weight that is kept
  void KeepAbove(float share);   // min-p: those with this share of the best one's weight
  int32_t At(double share);      // the token at this share of the weight that is kept, in [0, 1)

 private:
  static constexpr size_t kBuckets = 481;  // 16 for each factor of e in weight

  struct Bucket {
    uint32_t count = 0;
    float most = 0;   // the largest weight
    double mass = 0;  // the sum of all
  };
  struct Place {
    float logit;
    int32_t token;
    float weight;
  };

  size_t CountIn(size_t bucket) const;  // of those that are kept
  double MassIn(size_t bucket);
  double Mass();
  std::span<const Place> Sorted(size_t bucket);
  int32_t Walk(size_t bucket, double left);

  std::span<const float> logits_;
  std::vector<float> weights_;       // [vocab]
  std::vector<uint16_t> bucket_of_;  // [vocab]; kBuckets: left out
  std::array<Bucket, kBuckets + 1> buckets_;
  size_t last_ = 0;        // the bucket that the kept ones end in
  size_t last_count_ = 0;  // how many of it are kept: at least one
  std::vector<Place> sorted_;
  size_t sorted_bucket_ = kBuckets;  // kBuckets: none
};

}  // namespace reprise
