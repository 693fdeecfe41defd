// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/choice/buckets.cuh"
#include "kernels/cuda/choice/rank.cuh"

namespace reprise::cuda {

// What there is up to a place in the order, itself included, and which one it is.
struct Place {
  uint64_t rank;
  Count count;
  Mass mass;
};

// A block that finds places in the order of one row: the bucket from the sums, some tokens in it by
// where in it they lie, and the one among these by comparing all. All threads call everything.
// Lies in shared memory. It runs for some microseconds, and its code comes from far away: what is
// called often is not inlined, and loops stay rolled.
class Finder {
 public:
  static constexpr int kThreads = 1024;

  // What this thread's bucket has.
  __device__ static Place BucketOf(const BucketSums* sums) {
    static_assert(kBuckets <= kThreads);
    Place own = {};
    if (threadIdx.x >= kBuckets) return own;
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      own.count += sums[s].counts[threadIdx.x];
      own.mass += sums[s].masses[threadIdx.x];
    }
    return own;
  }

  // Before anything else. bucket: BucketOf(seen.sums).
  __device__ __noinline__ void Begin(const Seen& seen, const Place& bucket) {
    __syncthreads();
    if (threadIdx.x == 0) seen_ = seen;
    const Place upto = Accumulate(bucket);
    if (threadIdx.x < kBuckets) buckets_[threadIdx.x] = upto;
    __syncthreads();
  }

  // Of those that have a weight.
  __device__ Count count() const { return buckets_[kBuckets - 2].count; }
  __device__ Mass mass() const { return buckets_[kBuckets - 2].mass; }
  // Of those, the ones within min-p.
  __device__ Count near() const {
    Count count = 0;
    for (int s = 0; s < kSums; ++s) count += seen_.sums[s].near;
    return count;
  }

  // The place with which there are `count` tokens. REQUIRES: 0 < count <= the vocabulary.
  __device__ Place AtCount(Count count) { return Find(count, 0); }
  // The first with which there is as much weight. REQUIRES: 0 < mass <= mass().
  __device__ Place AtMass(Mass mass) { return Find(0, mass); }

  // Every rank of the buckets up to that of the last place.
  template <typename Function>
  __device__ void ForEachUpTo(const Function& function) const {
    ForEachIn(0, bucket_, function);
  }

 private:
  static constexpr int kFew = 128;

  // Members of a bucket: those of one fraction of it, if that is known, and with ranks that begin
  // with `bits`, above the lowest `unknown`.
  struct Members {
    int fraction = -1;
    uint64_t bits = 0;
    int unknown = 64;
  };

  // Whether what there is up to somewhere is enough.
  __device__ static bool Enough(const Place& upto, Count wanted_count, Mass wanted_mass) {
    return wanted_count > 0 ? upto.count >= wanted_count : upto.mass >= wanted_mass;
  }

  // Every thread gets the sum of those up to it.
  __device__ __noinline__ Place Accumulate(Place own) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    own = AccumulateInWarp(own);
    if (lane == 31) warps_[warp] = own;
    __syncthreads();
    if (warp == 0) warps_[lane] = AccumulateInWarp(warps_[lane]);
    __syncthreads();
    if (warp > 0) {
      own.count += warps_[warp - 1].count;
      own.mass += warps_[warp - 1].mass;
    }
    return own;
  }

  __device__ static Place AccumulateInWarp(Place own) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Count count = __shfl_up_sync(kFullWarp, own.count, step);
      const Mass mass = __shfl_up_sync(kFullWarp, own.mass, step);
      if (static_cast<int>(threadIdx.x % 32) < step) continue;
      own.count += count;
      own.mass += mass;
    }
    return own;
  }

  // The ranks of buckets [first, last], in no order: some threads a part, so that most vocabularies
  // are looked through at once.
  template <typename Function>
  __device__ void ForEachIn(int first, int last, const Function& function) const {
    constexpr int kTogether = 8, kAtOnce = 4;
#pragma unroll 1
    for (int p = threadIdx.x / kTogether; p < seen_.part_count; p += kThreads / kTogether) {
      const PartOrder& part = seen_.parts[p];
      const int end = part.begins[last + 1];
#pragma unroll 1
      for (int begin = part.begins[first] + threadIdx.x % kTogether; begin < end;
           begin += kAtOnce * kTogether) {
        uint32_t tokens[kAtOnce];
        float logits[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int at = begin + i * kTogether;
          tokens[i] = static_cast<uint32_t>(p * kPart + part.tokens[at < end ? at : begin]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) logits[i] = seen_.logits[tokens[i]];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (begin + i * kTogether < end) function(Rank(logits[i], tokens[i]));
        }
      }
    }
  }

  // What of the bucket has passed at a distance, in 256 parts, counted from its end: this grows
  // with the logit, evenly, which the bits of logits around 0 do not.
  __device__ int FractionOf(float distance) const {
    const float passed = distance * reference::kChoicePerUnit - static_cast<float>(bucket_);
    return 255 - min(255, static_cast<int>(passed * 256));
  }
  __device__ __noinline__ Mass WeightOf(float distance) const {
    return bucket_ == kBuckets - 1 ? 0 : Seen::Weight(distance);
  }

  // Calls function(rank, distance) for every one of them in the last place's bucket.
  template <typename Function>
  __device__ void ForEachOf(const Members& members, const Function& function) const {
    ForEachIn(bucket_, bucket_, [&](uint64_t rank) {
      const float distance = seen_.Distance(LogitOf(rank));
      if (members.fraction >= 0 && FractionOf(distance) != members.fraction) return;
      if (members.unknown < 64 && (rank ^ members.bits) >> members.unknown != 0) return;
      function(rank, distance);
    });
  }

  __device__ __noinline__ Place Find(Count wanted_count, Mass wanted_mass) {
    const int i = threadIdx.x;
    if (i < kBuckets && Enough(buckets_[i], wanted_count, wanted_mass) &&
        (i == 0 || !Enough(buckets_[i - 1], wanted_count, wanted_mass))) {
      bucket_ = i;
    }
    __syncthreads();
    Place before = bucket_ == 0 ? Place{} : buckets_[bucket_ - 1];
    Count count = buckets_[bucket_].count - before.count;
    // Digit by digit, the largest first: which one the place has follows from the counts and
    // weights of the members that have each, among those that have the digits before. The first is
    // the fraction of the bucket, the others are those of the rank.
    Members members;
    while (count > kFew) {
      CountDigits(members);
      ChooseDigit(before, wanted_count, wanted_mass);
      if (members.fraction < 0) {
        members.fraction = digit_;
      } else {
        members.unknown -= 8;
        members.bits |= static_cast<uint64_t>(digit_) << members.unknown;
      }
      before = before_;
      count = members_;
    }
    return FindAmongFew(members, before, wanted_count, wanted_mass);
  }

  __device__ void CountDigits(const Members& members) {
    if (threadIdx.x < 256) {
      digit_counts_[threadIdx.x] = 0;
      digit_masses_[threadIdx.x] = {};
    }
    __syncthreads();
    ForEachOf(members, [&](uint64_t rank, float distance) {
      const int digit = members.fraction < 0
                            ? FractionOf(distance)
                            : static_cast<int>(rank >> (members.unknown - 8)) & 255;
      atomicAdd(&digit_counts_[digit], 1u);
      digit_masses_[digit].Add(WeightOf(distance));
    });
    __syncthreads();
  }

  // The largest digit with which there is enough, its members, and what is before it.
  __device__ void ChooseDigit(const Place& before, Count wanted_count, Mass wanted_mass) {
    const int digit = 255 - static_cast<int>(threadIdx.x);
    Place own = {};
    if (digit >= 0) own = {0, digit_counts_[digit], digit_masses_[digit].sum()};
    Place upto = Accumulate(own);
    upto.count += before.count;
    upto.mass += before.mass;
    const Place above = {0, upto.count - own.count, upto.mass - own.mass};
    if (own.count > 0 && Enough(upto, wanted_count, wanted_mass) &&
        !Enough(above, wanted_count, wanted_mass)) {
      digit_ = digit;
      members_ = own.count;
      before_ = above;
    }
    __syncthreads();
  }

  // Some threads have one of them, and add up those that are not behind it.
  __device__ Place FindAmongFew(const Members& members, const Place& before, Count wanted_count,
                                Mass wanted_mass) {
    if (threadIdx.x == 0) few_count_ = 0;
    __syncthreads();
    ForEachOf(members, [&](uint64_t rank, float distance) {
      few_[atomicAdd(&few_count_, 1u)] = {rank, 1, WeightOf(distance)};
    });
    __syncthreads();
    constexpr int kTogether = kThreads / kFew;
    const Count few = few_count_, mine = threadIdx.x / kTogether;
    Place upto = {};
    if (mine < few) {
#pragma unroll 1
      for (Count i = threadIdx.x % kTogether; i < few; i += kTogether) {
        if (few_[i].rank < few_[mine].rank) continue;
        upto.count += 1;
        upto.mass += few_[i].mass;
      }
    }
#pragma unroll
    for (int other = 1; other < kTogether; other *= 2) {
      upto.count += __shfl_xor_sync(kFullWarp, upto.count, other);
      upto.mass += __shfl_xor_sync(kFullWarp, upto.mass, other);
    }
    if (mine < few) {
      upto.count += before.count;
      upto.mass += before.mass;
      const Place above = {0, upto.count - 1, upto.mass - few_[mine].mass};
      if (Enough(upto, wanted_count, wanted_mass) && !Enough(above, wanted_count, wanted_mass)) {
        found_ = {few_[mine].rank, upto.count, upto.mass};
      }
    }
    __syncthreads();
    return found_;
  }

  Seen seen_;
  Place buckets_[kBuckets];  // what there is up to each
  Place warps_[kThreads / 32];
  Count digit_counts_[256];
  SplitMass digit_masses_[256];
  Place few_[kFew];  // those that are compared, and what each has alone
  Count few_count_;
  int bucket_, digit_;  // that were found
  Count members_;       // with the digit
  Place before_;        // it
  Place found_;
};

}  // namespace reprise::cuda
