// SPDX-License-Identifier: Apache-2.0
// Tokens chosen on the device (kernels/reference/choice.h). Many blocks look at the parts of a row:
// the largest, adjusted where somebody wants that; then how many tokens and how much weight each
// bucket has, and which tokens. All sums are whole numbers, so atomic additions give one result.
// Then one block a row finds the places that filters and the draw ask for, and tells the host.
// Where nobody asks for more than the largest there is nothing to find.
#include <algorithm>

#include "kernels/cuda/choice/buckets.cuh"
#include "kernels/cuda/choice/choose.h"
#include "kernels/cuda/choice/finder.cuh"
#include "kernels/cuda/choice/rank.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/finite.cuh"

namespace reprise::cuda {
namespace {

constexpr int kViews = 2;  // as adjusted, at the row's temperature; as the model gave them, at 1
constexpr int kAdjusted = 0, kGiven = 1;

// What is known of a part of a row, or of a row.
struct Facts {
  Mass largest[kViews];  // as Rank
  Count infinite;        // whether some logit is
};

struct Workspace {
  int parts = 0;                  // of a row
  Facts* facts = nullptr;         // [rows, parts]
  float* adjusted = nullptr;      // [rows, vocab]; null: as given
  int first_view = 0, views = 0;  // of which somebody wants the buckets
  BucketSums* sums = nullptr;     // [rows, views, kSums]; null: nobody does
  PartOrder* orders = nullptr;    // [rows, views, parts]

  __device__ int64_t At(int64_t row, int view) const { return row * views + view - first_view; }
  __device__ BucketSums* SumsOf(int64_t row, int view) const {
    return sums + At(row, view) * kSums;
  }
  __device__ PartOrder* OrdersOf(int64_t row, int view) const {
    return orders + At(row, view) * parts;
  }
};

// The largest of the block's threads, as the first warp knows it then, and whether all say so.
struct Most {
  uint64_t rank;
  bool all;
};
__device__ Most MostOfBlock(uint64_t rank, bool so) {
  __shared__ uint64_t of_warp[kPartThreads / 32];
  rank = MaxOfWarp(rank);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = rank;
  const bool all = __syncthreads_and(so) != 0;
  if (threadIdx.x >= 32) return {0, all};
  return {MaxOfWarp(threadIdx.x < kPartThreads / 32 ? of_warp[threadIdx.x] : 0), all};
}

// By the blocks of one column of the grid, in turns.
__device__ void FlagSequences(const FlaggedRows& flagged) {
  WaitForInputs();
  for (int s = static_cast<int>(blockIdx.y); s < flagged.count; s += static_cast<int>(gridDim.y)) {
    const SequenceView& sequence = flagged.sequences[s];
    const bool finite = AreFinite(flagged.x, sequence.row_begin, sequence.row_count);
    const bool whole = flagged.spoilt == nullptr || flagged.spoilt[s] == 0;
    if (threadIdx.x == 0) flagged.finite[s] = finite && whole ? 1 : 0;
  }
}

// The part of this block begins at token blockIdx.x * kPart; thread t has every kPartThreads-th
// from there on.
__device__ int64_t TokenOfPart(int i) {
  return int64_t{blockIdx.x} * kPart + i * kPartThreads + threadIdx.x;
}

// All are asked for before the first is looked at.
__device__ void LoadPart(const float* row, int64_t vocab, float (&logits)[kPerThread]) {
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    logits[i] = TokenOfPart(i) < vocab ? row[TokenOfPart(i)] : 0.0f;
  }
}

// The rank of this thread's largest.
__device__ uint64_t LargestOf(const float (&logits)[kPerThread], int64_t vocab) {
  uint64_t most = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    if (TokenOfPart(i) >= vocab) break;
    const uint64_t rank = Rank(logits[i], static_cast<uint32_t>(TokenOfPart(i)));
    most = rank > most ? rank : most;
  }
  return most;
}

// What is not allowed becomes -inf; then biases, then penalties, of the few tokens that have some:
// every block looks through all of them for its own.
__device__ void Adjust(const ChoiceView& choice, const ChoiceRow& how, int64_t vocab,
                       float (&logits)[kPerThread]) {
  __shared__ float part[kPart];
  const uint64_t* mask =
      how.mask < 0 ? nullptr : choice.masks + int64_t{how.mask} * ((vocab + 63) / 64);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t token = TokenOfPart(i);
    const bool allowed =
        mask == nullptr || token >= vocab || (mask[token / 64] >> token % 64 & 1) != 0;
    part[i * kPartThreads + threadIdx.x] = allowed ? logits[i] : -INFINITY;
  }
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kPart;
  const auto is_mine = [&](int32_t token) { return token >= begin && token < begin + kPart; };
#pragma unroll 1
  for (int i = threadIdx.x; i < how.bias_count; i += kPartThreads) {
    const TokenBias one = choice.biases[how.bias_begin + i];
    if (is_mine(one.token)) part[one.token - begin] += one.bias;
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < how.said_count; i += kPartThreads) {
    const TokenSaid one = choice.said[how.said_begin + i];
    if (!is_mine(one.token)) continue;
    float logit = part[one.token - begin];
    if (how.repetition_penalty != 1) {
      logit = logit > 0 ? logit / how.repetition_penalty : logit * how.repetition_penalty;
    }
    if (one.generated > 0) {
      logit -= how.presence_penalty + how.frequency_penalty * static_cast<float>(one.generated);
    }
    part[one.token - begin] = logit;
  }
  __syncthreads();
  for (int i = 0; i < kPerThread; ++i) logits[i] = part[i * kPartThreads + threadIdx.x];
}

template <bool kAdjusts>
__global__ void __launch_bounds__(kPartThreads)
    LookAtLogits(View logits, ChoiceView choice, FlaggedRows flagged, Workspace work) {
  LetNextStart();
  if (static_cast<int>(blockIdx.x) == work.parts) return FlagSequences(flagged);
  const int64_t row = blockIdx.y;
  WaitForInputs();
  float part[kPerThread];
  LoadPart(logits.data + row * logits.stride, logits.cols, part);
  if (work.sums != nullptr) {
    auto* words = reinterpret_cast<Mass*>(work.SumsOf(row, work.first_view));
    const int count = work.views * static_cast<int>(kSums * sizeof(BucketSums) / sizeof(Mass));
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x) * kPartThreads + threadIdx.x; i < count;
         i += work.parts * kPartThreads) {
      words[i] = 0;
    }
  }
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) finite &= IsFinite(part[i]);
  const Most given = MostOfBlock(LargestOf(part, logits.cols), finite);
  Facts found = {{given.rank, given.rank}, given.all ? 0u : 1u};
  if constexpr (kAdjusts) {
    Adjust(choice, choice.rows[row], logits.cols, part);
    for (int i = 0; i < kPerThread; ++i) {
      if (TokenOfPart(i) >= logits.cols) break;
      work.adjusted[row * logits.cols + TokenOfPart(i)] = part[i];
    }
    found.largest[kAdjusted] = MostOfBlock(LargestOf(part, logits.cols), true).rank;
  }
  if (threadIdx.x == 0) work.facts[row * work.parts + blockIdx.x] = found;
}

// Of a whole row, as every thread of a warp that calls knows it then.
__device__ Facts JoinFacts(const Workspace& work, int64_t row) {
  Facts all = {};
#pragma unroll 4
  for (int p = threadIdx.x % 32; p < work.parts; p += 32) {
    const Facts part = work.facts[row * work.parts + p];
    for (int view = 0; view < kViews; ++view) {
      if (part.largest[view] > all.largest[view]) all.largest[view] = part.largest[view];
    }
    all.infinite |= part.infinite;
  }
  for (int view = 0; view < kViews; ++view) all.largest[view] = MaxOfWarp(all.largest[view]);
  all.infinite = __any_sync(kFullWarp, all.infinite != 0) != 0 ? 1 : 0;
  return all;
}

// Of a whole row, by the first warp for all: everybody calls.
__device__ Facts FactsOfRow(const Workspace& work, int64_t row) {
  __shared__ Facts of_row;
  if (threadIdx.x < 32) {
    const Facts facts = JoinFacts(work, row);
    if (threadIdx.x == 0) of_row = facts;
  }
  __syncthreads();
  return of_row;
}

// Whether a row needs its tokens in buckets, as this view sees them.
__device__ bool Wanted(const ChoiceRow& how, int view) {
  return view == kAdjusted ? how.temperature > 0 : how.logprobs >= 0;
}

__device__ const float* LogitsOf(const View& logits, const Workspace& work, int64_t row, int view) {
  const bool copied = view == kAdjusted && work.adjusted != nullptr;
  return copied ? work.adjusted + row * logits.cols : logits.data + row * logits.stride;
}

__device__ Seen Look(const View& logits, const Workspace& work, const ChoiceRow& how,
                     const Facts& facts, int64_t row, int view) {
  Seen seen;
  seen.logits = LogitsOf(logits, work, row, view);
  seen.largest = LogitOf(facts.largest[view]);
  seen.temperature = view == kAdjusted ? how.temperature : 1;
  seen.sums = work.SumsOf(row, view);
  seen.parts = work.OrdersOf(row, view);
  seen.part_count = work.parts;
  return seen;
}

// The sum of those of the lanes up to this one.
__device__ Count UpToLane(Count own) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Count other = __shfl_up_sync(kFullWarp, own, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) own += other;
  }
  return own;
}

// Counts and weights of the buckets, and the tokens of each.
__global__ void __launch_bounds__(kPartThreads)
    FillBuckets(View logits, ChoiceView choice, Workspace work) {
  static_assert(kBuckets < kPartThreads);
  __shared__ Count counts[kPartThreads];
  __shared__ SplitMass masses[kPartThreads];
  __shared__ Count of_warp[kPartThreads / 32];
  __shared__ Count near_count;
  __shared__ uint32_t places[kPart];  // the bucket, and how many of the part came into it before
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.y;
  const int view = work.first_view + static_cast<int>(blockIdx.z);
  LetNextStart();
  counts[thread] = 0;
  masses[thread] = {};
  if (thread == 0) near_count = 0;
  const ChoiceRow how = choice.rows[row];  // the step does not write it
  __syncthreads();
  WaitForInputs();
  if (!Wanted(how, view)) return;
  const int count =
      static_cast<int>(min(int64_t{kPart}, logits.cols - int64_t{blockIdx.x} * kPart));
  float part[kPerThread];  // asked for before anything is waited for
  LoadPart(LogitsOf(logits, work, row, view), logits.cols, part);
  const Seen seen = Look(logits, work, how, FactsOfRow(work, row), row, view);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    places[i * kPartThreads + thread] = __float_as_uint(part[i]);
  }
  Count near = 0;
#pragma unroll 1
  for (int i = thread; i < count; i += kPartThreads) {
    const float distance = seen.Distance(__uint_as_float(places[i]));
    const int bucket = reference::ChoiceBucket(distance);
    places[i] = static_cast<uint32_t>(bucket) << 16 | atomicAdd(&counts[bucket], 1u);
    if (bucket == kBuckets - 1) continue;
    masses[bucket].Add(Seen::Weight(distance));
    near += distance <= how.nearness ? 1 : 0;
  }
  if (near > 0) atomicAdd(&near_count, near);
  __syncthreads();
  const Count own = counts[thread];
  BucketSums& sums = seen.sums[blockIdx.x % kSums];
  if (own > 0) {
    atomicAdd(&sums.counts[thread], own);
    atomicAdd(&sums.masses[thread], masses[thread].sum());
  }
  if (view == kAdjusted && thread == 0 && near_count > 0) atomicAdd(&sums.near, near_count);

  // Where each bucket begins.
  Count upto = UpToLane(own);
  if (thread % 32 == 31) of_warp[thread / 32] = upto;
  __syncthreads();
  const Count warps = UpToLane(thread % 32 < kPartThreads / 32 ? of_warp[thread % 32] : 0);
  const Count before = __shfl_sync(kFullWarp, warps, thread / 32 - 1);
  if (thread >= 32) upto += before;
  counts[thread] = upto - own;
  __syncthreads();
  PartOrder& order = seen.parts[blockIdx.x];
  if (thread <= kBuckets) order.begins[thread] = static_cast<uint16_t>(upto - own);
#pragma unroll 1
  for (int i = thread; i < count; i += kPartThreads) {
    order.tokens[counts[places[i] >> 16] + (places[i] & 0xFFFF)] = static_cast<uint16_t>(i);
  }
}

__device__ __noinline__ uint32_t DrawToken(Finder* finder, const ChoiceRow& how) {
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
  if (how.nearness < INFINITY) keep_count(finder->near());
  return TokenOf(finder->AtMass(reference::ChoiceDraw(how.draw, mass)).rank);
}

// The words of a row, and those of the flags, as the host will find them.
struct Teller {
  const ToldView& told;
  uint64_t* words;
  uint32_t sign;

  // Asked for early, and by one thread: the sign lies in the host's memory.
  __device__ Teller(const ToldView& view, int64_t row, uint32_t* shared)
      : told(view), words(view.chosen + row * view.words) {
    if (threadIdx.x == 0) *shared = *reinterpret_cast<const volatile uint32_t*>(view.sign);
    __syncthreads();
    sign = *shared;
  }

  __device__ void Tell(uint64_t* word, uint32_t value) const {
    *reinterpret_cast<volatile uint64_t*>(word) = uint64_t{sign} << 32 | value;
  }
  __device__ void Tell(int word, uint32_t value) const { Tell(words + word, value); }

  __device__ void TellFlags(const uint8_t* flags) const {
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < told.flag_count; i += blockDim.x) {
      Tell(told.flags + i, flags[i]);
    }
  }
  // By one thread.
  __device__ void TellToken(bool finite, uint32_t token, float logit) const {
    Tell(0, finite ? token : ~0u);
    Tell(1, __float_as_uint(logit));
  }
};

// Where the largest of every row is all that is asked for. One block a row.
__global__ void __launch_bounds__(kPartThreads)
    TellLargest(View logits, Workspace work, const uint8_t* flags, ToldView told) {
  __shared__ uint32_t sign;
  const int64_t row = blockIdx.x;
  const Teller teller(told, row, &sign);
  WaitForInputs();
  if (row == 0) teller.TellFlags(flags);
  if (threadIdx.x >= 32) return;
  const Facts facts = JoinFacts(work, row);
  if (threadIdx.x != 0) return;
  const uint32_t token = TokenOf(facts.largest[kGiven]);
  float logit = LogitOf(facts.largest[kGiven]);
  if (logit == 0) logit = logits.data[row * logits.stride + token];  // which zero, nobody knows
  teller.TellToken(facts.infinite == 0, token, logit);
}

// The most likely ones: those at the place of the last of them and before it, each told where as
// many others are before it.
__device__ __noinline__ void ListTokens(Finder* finder, const float* logits, Count wanted,
                                        uint64_t* ranks, Count* found, const Teller& teller) {
  const Place last = finder->AtCount(wanted);
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  finder->ForEachUpTo([&](uint64_t rank) {
    if (rank >= last.rank) ranks[atomicAdd(found, 1u)] = rank;
  });
  __syncthreads();
  for (Count i = threadIdx.x; i < wanted; i += Finder::kThreads) {
    int before = 0;
    for (Count j = 0; j < wanted; ++j) before += ranks[j] > ranks[i] ? 1 : 0;
    const uint32_t token = TokenOf(ranks[i]);
    const int word = ToldView::kWordsBeforeListed + 2 * before;
    teller.Tell(word, token);
    teller.Tell(word + 1, __float_as_uint(logits[token]));
  }
}

// One block a row.
__global__ void __launch_bounds__(Finder::kThreads)
    ChooseOne(View logits, ChoiceView choice, Workspace work, const uint8_t* flags, ToldView told) {
  __shared__ Finder finder;
  __shared__ uint64_t ranks[kChoiceLogprobsMax];
  __shared__ Count found;
  __shared__ uint32_t sign;
  __shared__ ChoiceRow how;
  const int64_t row = blockIdx.x;
  if (threadIdx.x < sizeof(ChoiceRow) / sizeof(uint32_t)) {  // the step does not write it
    reinterpret_cast<uint32_t*>(&how)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(choice.rows + row)[threadIdx.x];
  }
  const Teller teller(told, row, &sign);
  WaitForInputs();
  if (row == 0) teller.TellFlags(flags);
  const bool drawn = how.temperature > 0;
  Place bucket = {};
  if (drawn) bucket = Finder::BucketOf(work.SumsOf(row, kAdjusted));  // on the way with the facts
  const Facts facts = FactsOfRow(work, row);
  const bool finite = facts.infinite == 0;
  const float* given = logits.data + row * logits.stride;
  uint32_t token = TokenOf(facts.largest[kAdjusted]);
  if (finite && drawn) {
    finder.Begin(Look(logits, work, how, facts, row, kAdjusted), bucket);
    token = DrawToken(&finder, how);
  }
  if (threadIdx.x == 0) teller.TellToken(finite, token, given[token]);
  if (told.words == ToldView::kWords) return;
  Mass mass = 0;
  Count listed = 0;
  if (finite && how.logprobs >= 0) {
    bucket = Finder::BucketOf(work.SumsOf(row, kGiven));
    finder.Begin(Look(logits, work, how, facts, row, kGiven), bucket);
    mass = finder.mass();
    listed = static_cast<Count>(how.logprobs < logits.cols ? int64_t{how.logprobs} : logits.cols);
    if (listed > 0) ListTokens(&finder, given, listed, ranks, &found, teller);
  }
  if (threadIdx.x != 0) return;
  teller.Tell(2, __float_as_uint(LogitOf(facts.largest[kGiven])));
  teller.Tell(3, listed);
  teller.Tell(4, static_cast<uint32_t>(mass));
  teller.Tell(5, static_cast<uint32_t>(mass >> 32));
}

// Rows that share a workspace at a time: it holds some values for every token of each.
int64_t AtOnce(int64_t rows, const ChoiceNeeds& needs) {
  return needs.none() ? rows : std::min<int64_t>(rows, 64);
}

Workspace Divide(int64_t rows, int64_t vocab, const ChoiceNeeds& needs, std::byte* memory,
                 size_t* bytes) {
  *bytes = 0;
  const auto take = [&]<typename T>(T** to, size_t count) {
    if (memory != nullptr) *to = reinterpret_cast<T*>(memory + *bytes);
    *bytes += (count * sizeof(T) + 255) / 256 * 256;
  };
  const auto count = static_cast<size_t>(rows);
  Workspace work;
  work.parts = static_cast<int>(Blocks(vocab, kPart));
  const auto parts = static_cast<size_t>(work.parts);
  take(&work.facts, count * parts);
  if (needs.adjusted) take(&work.adjusted, count * static_cast<size_t>(vocab));
  work.first_view = needs.drawn ? kAdjusted : kGiven;
  work.views = (needs.drawn ? 1 : 0) + (needs.logprobs ? 1 : 0);
  if (work.views > 0) {
    const size_t seen = count * static_cast<size_t>(work.views);
    take(&work.sums, seen * kSums);
    take(&work.orders, seen * parts);
  }
  return work;
}

// Blocks that start early gather on the multiprocessors that have room first, several on each, and
// are slow there. Where there are few they ask for so much shared memory that a multiprocessor has
// room for one of these kernels and one of those.
constexpr size_t kLookRoom = 112 << 10, kFillRoom = 88 << 10;
template <typename... Parameters, typename... Arguments>
void LaunchSpread(void (*kernel)(Parameters...), dim3 grid, size_t room, Stream stream,
                  Arguments&&... arguments) {
  const bool few = grid.x * grid.y * grid.z <= static_cast<unsigned>(ThisGpu().multiprocessors);
  constexpr size_t kReserved = 1 << 10;  // of every block
  const bool rooms = kLookRoom + kFillRoom + kReserved <= ThisGpu().block_shared;
  const size_t shared = few && ThisGpu().early_launch && rooms ? room : 0;
  LaunchEarly(kernel, grid, kPartThreads, shared, stream, static_cast<Arguments&&>(arguments)...);
}

}  // namespace

size_t ChooseWorkspace(int64_t rows, int64_t vocab, const ChoiceNeeds& needs) {
  size_t bytes = 0;
  Divide(AtOnce(rows, needs), vocab, needs, nullptr, &bytes);
  return bytes;
}

void ChooseTokens(Stream stream, const View& logits, const ChoiceView& choice,
                  const ChoiceNeeds& needs, const FlaggedRows& flagged, const uint8_t* flags,
                  const ToldView& told, std::byte* workspace) {
  const int64_t at_once = AtOnce(logits.rows, needs);
  for (int64_t row = 0; row < logits.rows; row += at_once) {
    View part = logits;
    part.data += row * part.stride;
    part.rows = std::min(at_once, logits.rows - row);
    size_t bytes = 0;
    const Workspace work = Divide(part.rows, logits.cols, needs, workspace, &bytes);
    const auto rows = static_cast<unsigned>(part.rows);
    const auto parts = static_cast<unsigned>(work.parts);
    ChoiceView how = choice;
    if (how.rows != nullptr) how.rows += row;
    ToldView to = told;
    to.chosen += row * to.words;
    if (row > 0) to.flag_count = 0;
    const bool flags_too = row == 0 && flagged.sequences != nullptr;
    LaunchSpread(needs.adjusted ? LookAtLogits<true> : LookAtLogits<false>,
                 dim3(parts + (flags_too ? 1 : 0), rows), kLookRoom, stream, part, how, flagged,
                 work);
    if (needs.none()) {
      LaunchEarly(TellLargest, rows, kPartThreads, 0, stream, part, work, flags, to);
      continue;
    }
    if (work.views > 0) {
      LaunchSpread(FillBuckets, dim3(parts, rows, static_cast<unsigned>(work.views)), kFillRoom,
                   stream, part, how, work);
    }
    LaunchEarly(ChooseOne, rows, Finder::kThreads, 0, stream, part, how, work, flags, to);
  }
}

}  // namespace reprise::cuda
