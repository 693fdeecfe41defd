// SPDX-License-Identifier: Apache-2.0
// Tokens chosen on the device (kernels/reference/choice.h). Many blocks look at the logits of a
// row: the largest, then how many tokens and how much weight each bucket has. All sums are whole
// numbers, so atomic additions give one result. Then one block a row finds the places that filters
// and the draw ask for: the bucket from the sums, the token in it by the digits of its rank. Where
// nobody asks for more than the largest there is a shorter way: a decoded token waits for all of
// it.
#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"
#include "kernels/reference/choice.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 16;
constexpr int kChooseThreads = 1024;
constexpr int kBuckets = reference::kChoiceBuckets;
constexpr int kBucketRoom = 512;  // as threads scan them
constexpr int kViews = 2;  // as adjusted, at the row's temperature; as the model gave them, at 1
constexpr int kAdjusted = 0, kGiven = 1;

using Count = unsigned int;
using Mass = unsigned long long;

// What is known of a row. Zeros at first.
struct RowFacts {
  Mass largest[kViews];  // as Rank
  Count infinite;        // logits that are not finite
  Count near;            // tokens within min-p
  Count counts[kViews][kBuckets];
  Mass masses[kViews][kBuckets];
};

// What is known of a part of a row.
struct PartFacts {
  Mass largest;
  Count infinite;
};

struct Workspace {
  RowFacts* facts = nullptr;    // [rows]
  float* adjusted = nullptr;    // [rows, vocab]; null: as given
  uint16_t* buckets = nullptr;  // [rows, views, vocab]
  uint32_t* members = nullptr;  // [rows, vocab]
};

// A logit and its token as one number that falls along the order; 0 is behind all. -0 counts as +0.
__device__ uint64_t Rank(float logit, uint32_t token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  const uint32_t ordered = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return uint64_t{ordered} << 32 | ~token;
}

__device__ uint32_t TokenOf(uint64_t rank) { return ~static_cast<uint32_t>(rank); }

__device__ float LogitOf(uint64_t rank) {
  const uint32_t ordered = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float((ordered & 0x80000000) != 0 ? ordered ^ 0x80000000 : ~ordered);
}

__device__ uint64_t MaxOfWarp(uint64_t rank) {
  const uint32_t high = static_cast<uint32_t>(rank >> 32), low = static_cast<uint32_t>(rank);
  const uint32_t most = __reduce_max_sync(kFullWarp, high);
  return uint64_t{most} << 32 | __reduce_max_sync(kFullWarp, high == most ? low : 0);
}

// The largest of a block goes to `most`.
__device__ void MaxOfBlock(uint64_t rank, Mass* most) {
  rank = MaxOfWarp(rank);
  if (threadIdx.x % 32 == 0) atomicMax(most, static_cast<Mass>(rank));
}

// What threads know of a part of a row, as the first warp of the block knows it then.
__device__ PartFacts FactsOfBlock(uint64_t rank, bool finite) {
  __shared__ uint64_t of_warp[kThreads / 32];
  rank = MaxOfWarp(rank);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = rank;
  const bool all = __syncthreads_and(finite) != 0;
  if (threadIdx.x >= 32) return {};
  return {MaxOfWarp(threadIdx.x < kThreads / 32 ? of_warp[threadIdx.x] : 0), all ? 0u : 1u};
}

// By the blocks of one column of the grid, in turns.
__device__ void FlagSequences(const FlaggedRows& flagged) {
  WaitForInputs();
  for (int s = static_cast<int>(blockIdx.y); s < flagged.count; s += static_cast<int>(gridDim.y)) {
    const SequenceView& sequence = flagged.sequences[s];
    const bool finite = AreFinite(flagged.x, sequence.row_begin, sequence.row_count);
    if (threadIdx.x == 0) flagged.finite[s] = finite ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    LookForLargest(View logits, FlaggedRows flagged, PartFacts* facts, int parts) {
  LetNextStart();
  if (static_cast<int>(blockIdx.x) == parts) return FlagSequences(flagged);
  const int64_t row = blockIdx.y;
  const float* from = logits.data + row * logits.stride;
  const auto token_of = [&](int i) {
    return (int64_t{blockIdx.x} * kPerThread + i) * kThreads + threadIdx.x;
  };
  uint64_t most = 0;
  bool finite = true;
  WaitForInputs();
  float logit[kPerThread];  // all are asked for before the first is looked at
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    logit[i] = token_of(i) < logits.cols ? from[token_of(i)] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (token_of(i) >= logits.cols) break;
    finite &= IsFinite(logit[i]);
    const uint64_t rank = Rank(logit[i], static_cast<uint32_t>(token_of(i)));
    most = rank > most ? rank : most;
  }
  const PartFacts found = FactsOfBlock(most, finite);
  if (threadIdx.x == 0) facts[row * parts + blockIdx.x] = found;
}

__device__ void Tell(uint64_t* word, uint32_t sign, uint32_t value) {
  *reinterpret_cast<volatile uint64_t*>(word) = uint64_t{sign} << 32 | value;
}

// One block a row.
__global__ void __launch_bounds__(kThreads)
    TellLargest(View logits, LargestView to, const PartFacts* facts, int parts) {
  __shared__ uint32_t sign;
  // Asked for early, and by one thread: it lies in the host's memory.
  if (threadIdx.x == 0) sign = *reinterpret_cast<const volatile uint32_t*>(to.sign);
  __syncthreads();
  WaitForInputs();
  const int64_t row = blockIdx.x;
  if (row == 0) {
    for (int64_t i = threadIdx.x; i < to.flag_count; i += kThreads) {
      Tell(to.flags_to + i, sign, to.flags[i]);
    }
  }
  uint64_t most = 0;
  bool finite = true;
  for (int i = threadIdx.x; i < parts; i += kThreads) {
    const PartFacts part = facts[row * parts + i];
    most = part.largest > most ? part.largest : most;
    finite &= part.infinite == 0;
  }
  const PartFacts found = FactsOfBlock(most, finite);
  if (threadIdx.x != 0) return;
  const uint32_t token = TokenOf(found.largest);
  float logit = LogitOf(found.largest);
  if (logit == 0) logit = logits.data[row * logits.stride + token];  // which zero, nobody knows
  Tell(to.chosen + 2 * row, sign, found.infinite == 0 ? token : ~0u);
  Tell(to.chosen + 2 * row + 1, sign, __float_as_uint(logit));
}

// The largest logit as given, whether all are finite; what is allowed goes to the copy.
__global__ void __launch_bounds__(kThreads)
    LookAtLogits(View logits, ChoiceView choice, Workspace work) {
  const int64_t row = blockIdx.y;
  const ChoiceRow& how = choice.rows[row];
  const uint64_t* mask =
      how.mask < 0 ? nullptr : choice.masks + int64_t{how.mask} * ((logits.cols + 63) / 64);
  const float* from = logits.data + row * logits.stride;
  uint64_t most = 0;
  bool finite = true;
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t token = (int64_t{blockIdx.x} * kPerThread + i) * kThreads + threadIdx.x;
    if (token >= logits.cols) break;
    const float logit = from[token];
    finite &= IsFinite(logit);
    const uint64_t rank = Rank(logit, static_cast<uint32_t>(token));
    most = rank > most ? rank : most;
    if (work.adjusted != nullptr) {
      const bool allowed = mask == nullptr || (mask[token / 64] >> token % 64 & 1) != 0;
      work.adjusted[row * logits.cols + token] = allowed ? logit : -INFINITY;
    }
  }
  RowFacts& facts = work.facts[row];
  MaxOfBlock(most, &facts.largest[kGiven]);
  if (__syncthreads_and(finite) == 0 && threadIdx.x == 0) facts.infinite = 1;
}

// Biases, then penalties, of the few tokens that have some. One block a row.
__global__ void __launch_bounds__(kThreads)
    AdjustLogits(View logits, ChoiceView choice, Workspace work) {
  const ChoiceRow& how = choice.rows[blockIdx.x];
  float* row = work.adjusted + blockIdx.x * logits.cols;
  for (int i = threadIdx.x; i < how.bias_count; i += kThreads) {
    const TokenBias one = choice.biases[how.bias_begin + i];
    row[one.token] += one.bias;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < how.said_count; i += kThreads) {
    const TokenSaid one = choice.said[how.said_begin + i];
    float logit = row[one.token];
    if (how.repetition_penalty != 1) {
      logit = logit > 0 ? logit / how.repetition_penalty : logit * how.repetition_penalty;
    }
    if (one.generated > 0) {
      logit -= how.presence_penalty + how.frequency_penalty * static_cast<float>(one.generated);
    }
    row[one.token] = logit;
  }
}

__global__ void __launch_bounds__(kThreads) LargestAdjusted(View logits, Workspace work) {
  const int64_t row = blockIdx.y;
  uint64_t most = 0;
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t token = (int64_t{blockIdx.x} * kPerThread + i) * kThreads + threadIdx.x;
    if (token >= logits.cols) break;
    const uint64_t rank =
        Rank(work.adjusted[row * logits.cols + token], static_cast<uint32_t>(token));
    most = rank > most ? rank : most;
  }
  MaxOfBlock(most, &work.facts[row].largest[kAdjusted]);
}

// The logits of a row as a view sees them.
struct Seen {
  const float* logits;
  uint16_t* buckets;
  float largest;
  float temperature;
};

__device__ Seen Look(const View& logits, const Workspace& work, const ChoiceRow& how, int64_t row,
                     int view) {
  const RowFacts& facts = work.facts[row];
  const bool copied = view == kAdjusted && work.adjusted != nullptr;
  Seen seen;
  seen.logits = copied ? work.adjusted + row * logits.cols : logits.data + row * logits.stride;
  seen.buckets = work.buckets + (row * kViews + view) * logits.cols;
  seen.largest = LogitOf(facts.largest[copied ? kAdjusted : kGiven]);
  seen.temperature = view == kAdjusted ? how.temperature : 1;
  return seen;
}

__device__ bool Wanted(const ChoiceRow& how, int view) {
  return view == kAdjusted ? how.temperature > 0 : how.logprobs >= 0;
}

// Counts and weights of the buckets.
__global__ void __launch_bounds__(kThreads)
    FillBuckets(View logits, ChoiceView choice, Workspace work) {
  __shared__ Count counts[kBuckets];
  __shared__ Mass masses[kBuckets];
  __shared__ Count near_count;
  const int64_t row = blockIdx.y;
  const int view = blockIdx.z;
  const ChoiceRow& how = choice.rows[row];
  if (!Wanted(how, view)) return;
  for (int i = threadIdx.x; i < kBuckets; i += kThreads) {
    counts[i] = 0;
    masses[i] = 0;
  }
  if (threadIdx.x == 0) near_count = 0;
  __syncthreads();
  const Seen seen = Look(logits, work, how, row, view);
  Count near = 0;
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t token = (int64_t{blockIdx.x} * kPerThread + i) * kThreads + threadIdx.x;
    if (token >= logits.cols) break;
    const float distance =
        reference::ChoiceDistance(seen.largest, seen.logits[token], seen.temperature);
    const int bucket = reference::ChoiceBucket(distance);
    seen.buckets[token] = static_cast<uint16_t>(bucket);
    atomicAdd(&counts[bucket], 1u);
    if (bucket == kBuckets - 1) continue;
    atomicAdd(&masses[bucket], Mass{reference::ChoiceWeight(reference::Exp(-distance))});
    near += distance <= how.nearness ? 1 : 0;
  }
  if (near > 0) atomicAdd(&near_count, near);
  __syncthreads();
  RowFacts& facts = work.facts[row];
  for (int i = threadIdx.x; i < kBuckets; i += kThreads) {
    if (counts[i] == 0) continue;
    atomicAdd(&facts.counts[view][i], counts[i]);
    atomicAdd(&facts.masses[view][i], masses[i]);
  }
  if (view == kAdjusted && threadIdx.x == 0) atomicAdd(&facts.near, near_count);
}

// A place in the order, and what there is up to it, itself included.
struct Place {
  uint64_t rank;
  Count count;
  Mass mass;
};

// One block that finds places in the order of one row. All threads call everything.
class Finder {
 public:
  struct Memory {
    Count counts[kBucketRoom];  // of the buckets up to each
    Mass masses[kBucketRoom];
    Count digit_counts[256];
    Mass digit_masses[256];
    Place warps[8];
    Place own, before;  // of the digit that was found
    Count members;
    int found;
    uint64_t rank;
  };

  __device__ Finder(Memory* memory, const Seen& seen, const RowFacts& facts, int view,
                    int64_t vocab, uint32_t* members)
      : memory_(memory), seen_(seen), vocab_(vocab), members_(members) {
    const int i = threadIdx.x;
    if (i < kBucketRoom) {
      memory->counts[i] = i < kBuckets ? facts.counts[view][i] : 0;
      memory->masses[i] = i < kBuckets ? facts.masses[view][i] : 0;
    }
    __syncthreads();
    for (int step = 1; step < kBucketRoom; step *= 2) {
      const bool adds = i >= step && i < kBucketRoom;
      const Count count = adds ? memory->counts[i - step] : 0;
      const Mass mass = adds ? memory->masses[i - step] : 0;
      __syncthreads();
      if (adds) {
        memory->counts[i] += count;
        memory->masses[i] += mass;
      }
      __syncthreads();
    }
  }

  // Of those that have a weight.
  __device__ Count count() const { return memory_->counts[kBuckets - 2]; }
  __device__ Mass mass() const { return memory_->masses[kBuckets - 2]; }

  // The place with which there are `count` tokens. REQUIRES: 0 < count <= the vocabulary.
  __device__ Place AtCount(Count count) { return Find(count, 0); }
  // The first with which there is as much weight. REQUIRES: 0 < mass <= mass().
  __device__ Place AtMass(Mass mass) { return Find(0, mass); }

  __device__ int bucket() const { return bucket_; }  // of the last place

 private:
  // Whether what there is up to somewhere is enough.
  __device__ static bool Enough(Count count, Mass mass, Count wanted_count, Mass wanted_mass) {
    return wanted_count > 0 ? count >= wanted_count : mass >= wanted_mass;
  }

  __device__ Mass WeightOf(float logit) const {
    const float distance = reference::ChoiceDistance(seen_.largest, logit, seen_.temperature);
    if (reference::ChoiceBucket(distance) == kBuckets - 1) return 0;
    return reference::ChoiceWeight(reference::Exp(-distance));
  }

  // The tokens of a bucket, in any order.
  __device__ void Gather(int bucket) {
    if (bucket == bucket_) return;
    bucket_ = bucket;
    __syncthreads();
    if (threadIdx.x == 0) memory_->members = 0;
    __syncthreads();
    for (int64_t token = threadIdx.x; token < vocab_; token += kChooseThreads) {
      if (seen_.buckets[token] == bucket) {
        members_[atomicAdd(&memory_->members, 1u)] = static_cast<uint32_t>(token);
      }
    }
    __syncthreads();
  }

  __device__ Place Find(Count wanted_count, Mass wanted_mass) {
    const int i = threadIdx.x;
    __syncthreads();
    if (i < kBuckets && Enough(memory_->counts[i], memory_->masses[i], wanted_count, wanted_mass) &&
        (i == 0 ||
         !Enough(memory_->counts[i - 1], memory_->masses[i - 1], wanted_count, wanted_mass))) {
      memory_->found = i;
    }
    __syncthreads();
    const int bucket = memory_->found;
    Place before = {0, bucket == 0 ? 0 : memory_->counts[bucket - 1],
                    bucket == 0 ? 0 : memory_->masses[bucket - 1]};
    Gather(bucket);
    return FindAmongMembers(before, wanted_count, wanted_mass);
  }

  // Digit by digit of the rank, the largest first: which one the place has follows from the counts
  // and weights of the members that have each, among those that have the digits before.
  __device__ Place FindAmongMembers(Place before, Count wanted_count, Mass wanted_mass) {
    uint64_t prefix = 0;
    for (int shift = 56;; shift -= 8) {
      CountDigits(prefix, shift);
      ChooseDigit(before, wanted_count, wanted_mass);
      prefix = prefix << 8 | static_cast<uint64_t>(memory_->found);
      before = memory_->before;
      if (memory_->own.count > 1 && shift > 0) continue;
      if (shift > 0) prefix = OnlyMember(prefix, shift);
      return {prefix, before.count + memory_->own.count, before.mass + memory_->own.mass};
    }
  }

  // Of the members whose rank begins with `prefix`, above the digit at `shift`.
  template <typename Function>
  __device__ void ForEachMember(uint64_t prefix, int shift, const Function& function) {
    for (Count m = threadIdx.x; m < memory_->members; m += kChooseThreads) {
      const uint32_t token = members_[m];
      const float logit = seen_.logits[token];
      const uint64_t rank = Rank(logit, token);
      if (shift == 64 || rank >> shift == prefix) function(rank, logit);
    }
  }

  __device__ void CountDigits(uint64_t prefix, int shift) {
    __syncthreads();
    if (threadIdx.x < 256) {
      memory_->digit_counts[threadIdx.x] = 0;
      memory_->digit_masses[threadIdx.x] = 0;
    }
    __syncthreads();
    ForEachMember(prefix, shift + 8, [&](uint64_t rank, float logit) {
      const int digit = static_cast<int>(rank >> shift & 255);
      atomicAdd(&memory_->digit_counts[digit], 1u);
      atomicAdd(&memory_->digit_masses[digit], WeightOf(logit));
    });
    __syncthreads();
  }

  // The largest digit with which there is enough: found, own, and what is before it.
  __device__ void ChooseDigit(Place before, Count wanted_count, Mass wanted_mass) {
    const int i = threadIdx.x;
    const int digit = 255 - i;
    Count count = 0;
    Mass mass = 0;
    if (i < 256) {
      count = memory_->digit_counts[digit];
      mass = memory_->digit_masses[digit];
      for (int step = 1; step < 32; step *= 2) {
        const Count other_count = __shfl_up_sync(kFullWarp, count, step);
        const Mass other_mass = __shfl_up_sync(kFullWarp, mass, step);
        if (i % 32 >= step) {
          count += other_count;
          mass += other_mass;
        }
      }
      if (i % 32 == 31) memory_->warps[i / 32] = {0, count, mass};
    }
    __syncthreads();
    if (i < 256) {
      for (int warp = 0; warp < i / 32; ++warp) {
        count += memory_->warps[warp].count;
        mass += memory_->warps[warp].mass;
      }
      const Place own = {0, memory_->digit_counts[digit], memory_->digit_masses[digit]};
      count += before.count;
      mass += before.mass;
      if (own.count > 0 && Enough(count, mass, wanted_count, wanted_mass) &&
          !Enough(count - own.count, mass - own.mass, wanted_count, wanted_mass)) {
        memory_->found = digit;
        memory_->own = own;
        memory_->before = {0, count - own.count, mass - own.mass};
      }
    }
    __syncthreads();
  }

  __device__ uint64_t OnlyMember(uint64_t prefix, int shift) {
    ForEachMember(prefix, shift, [&](uint64_t rank, float) { memory_->rank = rank; });
    __syncthreads();
    return memory_->rank;
  }

  Memory* memory_;
  Seen seen_;
  int64_t vocab_;
  uint32_t* members_;
  int bucket_ = -1;
};

__device__ uint32_t DrawToken(Finder* finder, const RowFacts& facts, const ChoiceRow& how) {
  Count count = finder->count();
  Mass mass = finder->mass();
  const auto keep_count = [&](Count kept) {
    if (kept >= count) return;
    const Place place = finder->AtCount(kept);
    count = place.count;
    mass = place.mass;
  };
  if (how.top_k > 0) keep_count(static_cast<Count>(how.top_k));
  if (how.top_p < 1) {
    const Place place = finder->AtMass(reference::ChoiceShare(how.top_p, mass));
    count = place.count;
    mass = place.mass;
  }
  if (how.nearness < INFINITY) keep_count(facts.near);
  return TokenOf(finder->AtMass(reference::ChoiceDraw(how.draw, mass)).rank);
}

// The most likely ones: those at the place of the last of them and before it, each put where as
// many others are before it.
__device__ void ListTokens(Finder* finder, const Seen& seen, int64_t vocab, Count wanted,
                           ListedToken* listed, uint64_t* ranks, Count* found) {
  const Place last = finder->AtCount(wanted);
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  for (int64_t token = threadIdx.x; token < vocab; token += kChooseThreads) {
    if (seen.buckets[token] > finder->bucket()) continue;
    const uint64_t rank = Rank(seen.logits[token], static_cast<uint32_t>(token));
    if (rank >= last.rank) ranks[atomicAdd(found, 1u)] = rank;
  }
  __syncthreads();
  for (Count i = threadIdx.x; i < wanted; i += kChooseThreads) {
    Count before = 0;
    for (Count j = 0; j < wanted; ++j) before += ranks[j] > ranks[i] ? 1 : 0;
    const uint32_t token = TokenOf(ranks[i]);
    listed[before] = {static_cast<int32_t>(token), seen.logits[token]};
  }
}

__global__ void __launch_bounds__(kChooseThreads)
    ChooseOne(View logits, ChoiceView choice, Workspace work) {
  __shared__ Finder::Memory memory;
  __shared__ uint64_t ranks[kChoiceLogprobsMax];
  __shared__ Count found;
  const int64_t row = blockIdx.x;
  const ChoiceRow& how = choice.rows[row];
  const RowFacts& facts = work.facts[row];
  ChosenToken chosen;
  uint32_t* members = work.members == nullptr ? nullptr : work.members + row * logits.cols;
  if (facts.infinite == 0) {
    const uint64_t largest = facts.largest[work.adjusted != nullptr ? kAdjusted : kGiven];
    uint32_t token = TokenOf(largest);
    if (how.temperature > 0) {
      Finder finder(&memory, Look(logits, work, how, row, kAdjusted), facts, kAdjusted, logits.cols,
                    members);
      token = DrawToken(&finder, facts, how);
      __syncthreads();
    }
    chosen.token = static_cast<int32_t>(token);
    chosen.logit = logits.data[row * logits.stride + token];
    chosen.largest = LogitOf(facts.largest[kGiven]);
    if (how.logprobs >= 0) {
      const Seen seen = Look(logits, work, how, row, kGiven);
      Finder finder(&memory, seen, facts, kGiven, logits.cols, members);
      chosen.mass = finder.mass();
      chosen.listed =
          static_cast<uint32_t>(how.logprobs < logits.cols ? int64_t{how.logprobs} : logits.cols);
      if (chosen.listed > 0) {
        ListTokens(&finder, seen, logits.cols, chosen.listed,
                   choice.listed + row * choice.logprobs_max, ranks, &found);
      }
    }
  }
  if (threadIdx.x == 0) choice.chosen[row] = chosen;
}

Workspace Divide(int64_t rows, int64_t vocab, const ChoiceNeeds& needs, std::byte* memory,
                 size_t* bytes) {
  *bytes = 0;
  const auto take = [&](size_t size) {
    std::byte* place = memory == nullptr ? nullptr : memory + *bytes;
    *bytes += (size + 255) / 256 * 256;
    return place;
  };
  const auto values = static_cast<size_t>(rows * vocab);
  Workspace work;
  work.facts = reinterpret_cast<RowFacts*>(take(static_cast<size_t>(rows) * sizeof(RowFacts)));
  if (needs.adjusted) work.adjusted = reinterpret_cast<float*>(take(values * sizeof(float)));
  if (needs.drawn || needs.logprobs) {
    work.buckets = reinterpret_cast<uint16_t*>(take(kViews * values * sizeof(uint16_t)));
    work.members = reinterpret_cast<uint32_t*>(take(values * sizeof(uint32_t)));
  }
  return work;
}

}  // namespace

size_t ChooseWorkspace(int64_t rows, int64_t vocab, const ChoiceNeeds& needs) {
  size_t bytes = 0;
  Divide(rows, vocab, needs, nullptr, &bytes);
  return bytes;
}

void ChooseTokens(Stream stream, const View& logits, const ChoiceView& choice,
                  const ChoiceNeeds& needs, std::byte* workspace) {
  if (logits.rows == 0) return;
  size_t bytes = 0;
  const Workspace work = Divide(logits.rows, logits.cols, needs, workspace, &bytes);
  const auto rows = static_cast<unsigned>(logits.rows);
  const unsigned parts = Blocks(logits.cols, kThreads * kPerThread);
  cudaMemsetAsync(work.facts, 0, rows * sizeof(RowFacts), stream);
  LookAtLogits<<<dim3(parts, rows), kThreads, 0, stream>>>(logits, choice, work);
  if (needs.adjusted) {
    AdjustLogits<<<rows, kThreads, 0, stream>>>(logits, choice, work);
    LargestAdjusted<<<dim3(parts, rows), kThreads, 0, stream>>>(logits, work);
  }
  if (needs.drawn || needs.logprobs) {
    FillBuckets<<<dim3(parts, rows, kViews), kThreads, 0, stream>>>(logits, choice, work);
  }
  ChooseOne<<<rows, kChooseThreads, 0, stream>>>(logits, choice, work);
}

size_t LargestWorkspace(int64_t rows, int64_t vocab) {
  return size_t(rows) * Blocks(vocab, kThreads * kPerThread) * sizeof(PartFacts);
}

void ChooseLargest(Stream stream, const View& logits, const LargestView& largest,
                   std::byte* workspace) {
  if (logits.rows == 0) return;
  const auto rows = static_cast<unsigned>(logits.rows);
  const unsigned parts = Blocks(logits.cols, kThreads * kPerThread);
  auto* facts = reinterpret_cast<PartFacts*>(workspace);
  const FlaggedRows& flagged = largest.flagged;
  const dim3 grid(parts + (flagged.sequences != nullptr ? 1 : 0), rows);
  LaunchEarly(LookForLargest, grid, kThreads, 0, stream, logits, flagged, facts, int(parts));
  LaunchEarly(TellLargest, rows, kThreads, 0, stream, logits, largest, facts, int(parts));
}

}  // namespace reprise::cuda
