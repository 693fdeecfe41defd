// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/reference/choice.h"

namespace reprise::cuda {

using Count = unsigned int;
using Mass = unsigned long long;

inline constexpr int kBuckets = reference::kChoiceBuckets;

// Tokens that one block puts into buckets: a part of a row.
inline constexpr int kPartThreads = 512;
inline constexpr int kPerThread = 4;
inline constexpr int kPart = kPartThreads * kPerThread;

// Of all tokens of some parts of a row. Zeros at first.
struct BucketSums {
  Mass masses[kBuckets];
  Count counts[kBuckets];
  Count near;  // tokens within min-p
};
// So many of them a row: additions to one place wait for each other.
inline constexpr int kSums = 8;

// The tokens of a part in the order of their buckets: those of bucket b are entries
// [begins[b], begins[b + 1]) of `tokens`, in no order, counted from the first token of the part.
struct PartOrder {
  uint16_t begins[kBuckets + 2];  // one more than there is need for
  uint16_t tokens[kPart];
};

// The logits of a row as somebody looks at them, and what is known of them.
struct Seen {
  const float* logits;  // [vocab]
  float largest;
  float temperature;
  BucketSums* sums;  // [kSums]
  PartOrder* parts;  // [part_count]
  int part_count;

  __device__ float Distance(float logit) const {
    return reference::ChoiceDistance(largest, logit, temperature);
  }
  __device__ static Mass Weight(float distance) {
    return reference::ChoiceWeight(reference::Exp(-distance));
  }
};

// A sum in shared memory to which many threads add: 64 bits would be a loop around each other.
struct SplitMass {
  Count low, high;

  __device__ void Add(Mass mass) {
    const auto added = static_cast<Count>(mass);
    const Count before = atomicAdd(&low, added);
    const Count carried = before + added < before ? 1 : 0;
    atomicAdd(&high, static_cast<Count>(mass >> 32) + carried);
  }
  __device__ Mass sum() const { return Mass{high} << 32 | low; }
};

}  // namespace reprise::cuda
