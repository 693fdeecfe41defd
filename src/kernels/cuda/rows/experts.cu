// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "device/raw.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/experts.h"
#include "kernels/reference/math.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxGroups = 64;

// Reductions over the scores of one row by one warp.

// Larger for larger values; the same for both zeros, 0 for what is no number.
__device__ uint32_t OrderOf(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return value != value ? 0 : order;
}

// What RoutingParams says of each expert: [experts], or null.
struct ExpertNumbers {
  const float* bias = nullptr;
  const float* scale = nullptr;
};

ExpertNumbers NumbersOf(const RoutingParams& params) {
  return {Raw(params.selection_bias), Raw(params.expert_scale)};
}

// The index of the largest of `count` values, the lowest of equals. Where all are NaN: the last,
// as on the CPU.
__device__ int Best(const float* values, int count, int lane) {
  uint32_t order = 0, index = UINT32_MAX;
  for (int i = lane; i < count; i += 32) {
    const uint32_t other = OrderOf(values[i]);
    if (other > order) order = other, index = uint32_t(i);
  }
  const uint32_t best = __reduce_max_sync(kFullWarp, order);
  if (best == 0) return count - 1;
  return int(__reduce_min_sync(kFullWarp, order == best ? index : UINT32_MAX));
}

__device__ float LargestBeside(const float* values, int count, int left_out, int lane) {
  float largest = -INFINITY;
  for (int i = lane; i < count; i += 32) {
    if (i != left_out && values[i] > largest) largest = values[i];
  }
  for (int half = 16; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, largest, half);
    if (other > largest) largest = other;
  }
  return largest;
}

// Scores of experts outside the best groups become -inf. worth: [groups], shared.
__device__ void KeepBestGroups(const RoutingParams& params, int experts, float* worth,
                               float* scores, int lane) {
  const int width = experts / params.groups;
  for (int g = 0; g < params.groups; ++g) {
    const int first = Best(scores + g * width, width, lane);
    const float second = LargestBeside(scores + g * width, width, first, lane);
    if (lane == 0) worth[g] = scores[g * width + first] + second;
  }
  __syncwarp();
  uint64_t kept = 0;
  for (int n = 0; n < params.group_top_k; ++n) {
    const int best = Best(worth, params.groups, lane);
    kept |= uint64_t{1} << best;
    __syncwarp();
    if (lane == 0) worth[best] = -INFINITY;
    __syncwarp();
  }
  for (int e = lane; e < experts; e += 32) {
    if ((kept >> (e / width) & 1) == 0) scores[e] = -INFINITY;
  }
  __syncwarp();
}

// The sum of values in the 16 virtual lanes; both halves of the warp hold it.
__device__ float SumInLanes(const float* values, int count, int lane) {
  float sum = 0;
  for (int i = lane % 16; i < count; i += 16) sum += values[i];
  return SumLanes(sum);
}

__device__ void Probabilities(const float* logits, int experts, ExpertScore score, int lane,
                              float* probability) {
  if (score == ExpertScore::kSigmoid) {
    for (int e = lane; e < experts; e += 32) {
      probability[e] = reference::Sigmoid(logits[e] + 0.0f);
    }
    return;
  }
  const float max = LargestBeside(logits, experts, -1, lane);
  for (int e = lane; e < experts; e += 32) probability[e] = reference::Exp(logits[e] - max);
  __syncwarp();
  const float r = 1.0f / SumInLanes(probability, experts, lane);
  for (int e = lane; e < experts; e += 32) probability[e] *= r;
}

// A warp a row, alone in its block; probabilities and scores in shared memory.
__global__ void __launch_bounds__(32)
    RouteRows(View logits, RoutingParams params, ExpertNumbers numbers, RoutingView routing) {
  extern __shared__ float shared[];  // [experts] twice
  __shared__ float worth[kMaxGroups];
  const int lane = static_cast<int>(threadIdx.x);
  const int experts = static_cast<int>(logits.cols);
  float* probability = shared;
  float* score = shared + experts;
  WaitForInputs();
  LetNextStart();
  Probabilities(logits.data + blockIdx.x * logits.stride, experts, params.score, lane, probability);
  __syncwarp();
  for (int e = lane; e < experts; e += 32) {
    score[e] = numbers.bias != nullptr ? probability[e] + numbers.bias[e] : probability[e];
  }
  __syncwarp();
  if (params.groups > 1) KeepBestGroups(params, experts, worth, score, lane);
  int32_t* chosen = routing.experts + int64_t{blockIdx.x} * params.top_k;
  float* weights = routing.weights + int64_t{blockIdx.x} * params.top_k;
  float sum = 0;
  for (int k = 0; k < params.top_k; ++k) {
    const int best = Best(score, experts, lane);
    sum += probability[best];
    __syncwarp();
    if (lane == 0) {
      chosen[k] = best;
      score[best] = -INFINITY;
    }
    __syncwarp();
  }
  for (int k = lane; k < params.top_k; k += 32) {
    float weight = probability[chosen[k]];
    if (params.renormalise) weight /= sum + params.sum_floor;
    weight *= params.scale;
    weights[k] = numbers.scale != nullptr ? weight * numbers.scale[chosen[k]] : weight;
  }
}

// Pairs are cut into chunks. counts[chunk][expert] first says how many of a chunk's pairs go to an
// expert, then the slot of the first of them.
constexpr int kChunk = 1024;

__global__ void __launch_bounds__(kThreads)
    CountChunk(const int32_t* chosen, int64_t pairs, int experts, int32_t* counts) {
  extern __shared__ int32_t histogram[];  // [experts]
  WaitForInputs();
  LetNextStart();
  for (int e = threadIdx.x; e < experts; e += kThreads) histogram[e] = 0;
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t end = begin + kChunk < pairs ? begin + kChunk : pairs;
  for (int64_t pair = begin + threadIdx.x; pair < end; pair += kThreads) {
    atomicAdd(histogram + chosen[pair], 1);  // a count: the order of additions is nothing
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    counts[int64_t{blockIdx.x} * experts + e] = histogram[e];
  }
}

// By one block: the sum over chunks of every expert, the sum over experts before it, and then the
// first slot of every chunk and expert.
constexpr int kScanThreads = 1024;
__device__ __forceinline__ void FindSlots(int chunks, int experts, int32_t* counts,
                                          int32_t* begin) {
  __shared__ int32_t warp_sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t before = 0;  // slots of the experts of earlier rounds
  for (int first = 0; first < experts; first += kScanThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    int32_t total = 0;
    for (int chunk = 0; e < experts && chunk < chunks; ++chunk) {
      total += counts[int64_t{chunk} * experts + e];
    }
    int32_t through = total;  // inclusive sum in the warp
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = __shfl_up_sync(kFullWarp, through, step);
      if (lane >= step) through += other;
    }
    if (lane == 31) warp_sums[warp] = through;
    __syncthreads();
    int32_t slot = before + through - total;
    for (int w = 0; w < 32; ++w) {
      if (w < warp) slot += warp_sums[w];
      before += warp_sums[w];
    }
    __syncthreads();
    if (e >= experts) continue;
    begin[e] = slot;
    if (e + 1 == experts) begin[experts] = slot + total;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int32_t& count = counts[int64_t{chunk} * experts + e];
      const int32_t here = count;
      count = slot;
      slot += here;
    }
  }
}

__global__ void __launch_bounds__(kScanThreads)
    ScanCounts(int chunks, int experts, int32_t* counts, int32_t* begin) {
  WaitForInputs();
  LetNextStart();
  FindSlots(chunks, experts, counts, begin);
}

// A warp gives out the slots of pairs [begin, end) in their order, 32 at a time. next: the first
// slot of every expert that is free, in shared memory.
__device__ __forceinline__ void GiveSlots(const int32_t* chosen, int64_t begin, int64_t end,
                                          int top_k, int32_t* next, int32_t* row, int32_t* slot) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t pair = at + lane;
    const int expert = pair < end ? chosen[pair] : -1;
    const unsigned same = __match_any_sync(kFullWarp, expert);
    const int earlier = __popc(same & ((1u << lane) - 1));
    if (pair < end) {
      const int32_t mine = next[expert] + earlier;
      slot[pair] = mine;
      row[mine] = static_cast<int32_t>(pair) / top_k;
    }
    __syncwarp();
    if (pair < end && earlier == 0) next[expert] += __popc(same);
    __syncwarp();
  }
}

__global__ void __launch_bounds__(32)
    PlaceChunk(const int32_t* chosen, int64_t pairs, int top_k, int experts, const int32_t* counts,
               int32_t* row, int32_t* slot) {
  extern __shared__ int32_t next[];  // [experts]
  WaitForInputs();
  LetNextStart();
  for (int e = threadIdx.x; e < experts; e += 32) {
    next[e] = counts[int64_t{blockIdx.x} * experts + e];
  }
  __syncwarp();
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  GiveSlots(chosen, begin, begin + kChunk < pairs ? begin + kChunk : pairs, top_k, next, row, slot);
}

// All three for one chunk: what a decoded token waits for is the number of kernels.
__global__ void __launch_bounds__(kScanThreads)
    PlanChunk(const int32_t* chosen, int pairs, int top_k, int experts, int32_t* begin,
              int32_t* row, int32_t* slot) {
  extern __shared__ int32_t counts[];  // [experts]
  for (int e = threadIdx.x; e < experts; e += kScanThreads) counts[e] = 0;
  __syncthreads();
  WaitForInputs();
  LetNextStart();
  if (static_cast<int>(threadIdx.x) < pairs) atomicAdd(counts + chosen[threadIdx.x], 1);
  __syncthreads();
  FindSlots(1, experts, counts, begin);
  __syncthreads();
  if (threadIdx.x < 32) GiveSlots(chosen, 0, pairs, top_k, counts, row, slot);
}

// --- The route and the plan of few rows as one kernel --------------------------------------------

constexpr int kRoutedRows = 32;  // a warp each, in one block
constexpr int kRoutedExperts = 512;
constexpr int kRoutedChoices = 32;  // a lane each

// The score of an expert that was chosen: OrderOf(-inf).
constexpr uint32_t kChosen = 0x007FFFFF;

// The value that has this order; of both zeros one.
__device__ __forceinline__ float ValueOf(uint32_t order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order ^ 0x80000000u : ~order);
}

// Probabilities and scores of a row in the registers of a warp: a lane holds every 32nd expert.
// Where there is none, the logit is -inf, which adds nothing to the sum, and the bias is no number,
// nor is the score then, which is never the best.
template <int kHeld>
class HeldRow {
 public:
  __device__ __forceinline__ HeldRow(int experts, int lane) : experts_(experts), lane_(lane) {}

  // The bias is a weight: this may come before the wait.
  __device__ __forceinline__ void AskForBias(const float* bias) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const bool there = Expert(i) < experts_;
      bias_[i] = there ? 0.0f : NAN;
      if (there && bias != nullptr) bias_[i] = bias[Expert(i)];
    }
  }
  __device__ __forceinline__ void Read(const float* logits, ExpertScore score) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      probability_[i] = Expert(i) < experts_ ? logits[Expert(i)] : -INFINITY;
    }
    if (score == ExpertScore::kSoftmax) return Softmax();
#pragma unroll
    for (int i = 0; i < kHeld; ++i) probability_[i] = reference::Sigmoid(probability_[i] + 0.0f);
  }
  // Behind both.
  __device__ __forceinline__ void Score() {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) order_[i] = OrderOf(probability_[i] + bias_[i]);
  }

  // The best of those that were not chosen yet, as Best finds it.
  __device__ __forceinline__ int Choose(float* probability) {
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) mine = max(mine, order_[i]);
    const uint32_t largest = __reduce_max_sync(kFullWarp, mine);
    // Compared with what the compiler knows: there are no registers for the indices of all.
    uint32_t index = kNoIndex;
#pragma unroll
    for (int i = kHeld - 1; i >= 0; --i) {
      if (order_[i] == largest) index = uint32_t(32 * i);
    }
    index = __reduce_min_sync(kFullWarp, index + uint32_t(lane_));
    const int best = largest == 0 ? experts_ - 1 : int(index);
    float its = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (best - lane_ != 32 * i) continue;
      its = probability_[i];
      order_[i] = kChosen;
    }
    *probability = __shfl_sync(kFullWarp, its, static_cast<unsigned>(best) % 32);
    return best;
  }

  __device__ __forceinline__ int Expert(int i) const { return lane_ + 32 * i; }

 private:
  __device__ __forceinline__ void Softmax() {
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) mine = max(mine, OrderOf(probability_[i]));
    const float max = ValueOf(__reduce_max_sync(kFullWarp, mine));
    // The 16 virtual lanes: a half of the warp has every second link of their chains.
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      probability_[i] = reference::Exp(probability_[i] - max);
      const float other = __shfl_xor_sync(kFullWarp, probability_[i], 16);
      sum += lane_ < 16 ? probability_[i] : other;
      sum += lane_ < 16 ? other : probability_[i];
    }
    const float r = 1.0f / SumLanes(sum);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) probability_[i] *= r;
  }

  static constexpr uint32_t kNoIndex = UINT32_MAX - 31;  // a lane can still be added

  const int experts_, lane_;
  float bias_[kHeld];
  float probability_[kHeld];
  uint32_t order_[kHeld];  // of the scores
};

// Choice `lane` of a row, of those that there are. each(best): for every choice, best first.
struct Choice {
  int expert = -1;
  float weight = 0;
};
template <int kHeld, typename Each>
__device__ __forceinline__ Choice ChooseExperts(HeldRow<kHeld>& row, const RoutingParams& params,
                                                const float* scale, int lane, const Each& each) {
  Choice mine;
  float sum = 0;
#pragma unroll 1
  for (int choice = 0; choice < params.top_k; ++choice) {
    float probability;
    const int best = row.Choose(&probability);
    sum += probability;
    if (lane == choice) mine = {best, probability};
    each(best);
  }
  if (params.renormalise) mine.weight /= sum + params.sum_floor;
  mine.weight *= params.scale;
  if (scale != nullptr && mine.expert >= 0) mine.weight *= scale[mine.expert];
  return mine;
}

// One row: the plan is made where the choices are, by comparing them.
template <int kHeld>
__global__ void __launch_bounds__(32)
    RouteAndPlanRow(const float* logits, RoutingParams params, ExpertNumbers numbers,
                    RoutingView routing, PlanView plan) {
  __shared__ int32_t first[32 * kHeld];
  LetNextStart();
  const int lane = static_cast<int>(threadIdx.x);
  HeldRow<kHeld> row(plan.experts, lane);
  row.AskForBias(numbers.bias);
  WaitForInputs();
  row.Read(logits, params.score);
  row.Score();
  int32_t below[kHeld] = {};  // choices with a lower index than an expert
  const Choice mine = ChooseExperts(row, params, numbers.scale, lane, [&](int best) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) below[i] += best - lane < 32 * i ? 1 : 0;
  });
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    first[row.Expert(i)] = below[i];
    if (row.Expert(i) < plan.experts) plan.begin[row.Expert(i)] = below[i];
  }
  if (lane == 0) plan.begin[plan.experts] = params.top_k;
  // One expert is chosen twice only where what is left are no numbers.
  const unsigned same = __match_any_sync(kFullWarp, mine.expert);
  __syncwarp();
  if (lane >= params.top_k) return;
  const int32_t slot = first[mine.expert] + __popc(same & ((1u << lane) - 1));
  routing.experts[lane] = mine.expert;
  routing.weights[lane] = mine.weight;
  plan.slot[lane] = slot;
  plan.row[slot] = 0;
}

template <int kHeld>
__global__ void __launch_bounds__(kScanThreads)
    RouteAndPlanRows(View logits, RoutingParams params, ExpertNumbers numbers, RoutingView routing,
                     PlanView plan) {
  static_assert(kRoutedRows * 32 <= kScanThreads && kRoutedExperts <= kScanThreads);
  __shared__ int32_t counts[kRoutedExperts];
  __shared__ int32_t chosen[kRoutedRows * kRoutedChoices];
  LetNextStart();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  if (static_cast<int>(threadIdx.x) < plan.experts) counts[threadIdx.x] = 0;
  __syncthreads();
  WaitForInputs();
  if (warp < static_cast<int>(logits.rows)) {
    HeldRow<kHeld> row(plan.experts, lane);
    row.Read(logits.data + warp * logits.stride, params.score);
    // No earlier: a block of so many threads has no registers for both.
    row.AskForBias(numbers.bias);
    row.Score();
    const Choice mine = ChooseExperts(row, params, numbers.scale, lane, [](int) {});
    const int pair = warp * params.top_k + lane;
    if (lane < params.top_k) {
      routing.experts[pair] = chosen[pair] = mine.expert;
      routing.weights[pair] = mine.weight;
      atomicAdd(counts + mine.expert, 1);  // a count: the order of additions is nothing
    }
  }
  __syncthreads();
  FindSlots(1, plan.experts, counts, plan.begin);
  __syncthreads();
  if (warp == 0) GiveSlots(chosen, 0, plan.slots, params.top_k, counts, plan.row, plan.slot);
}

template <int kHeld>
void LaunchRouteAndPlan(Stream stream, const View& logits, const RoutingParams& params,
                        const RoutingView& routing, const PlanView& plan) {
  const ExpertNumbers numbers = NumbersOf(params);
  if (logits.rows == 1) {
    return LaunchEarly(RouteAndPlanRow<kHeld>, 1, 32, 0, stream, logits.data, params, numbers,
                       routing, plan);
  }
  LaunchEarly(RouteAndPlanRows<kHeld>, 1, kScanThreads, 0, stream, logits, params, numbers, routing,
              plan);
}

__global__ void __launch_bounds__(kThreads)
    CombineRows(RoutingView routing, const int32_t* slot, View slots, SumStart start, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= y.cols) return;
  constexpr int kAtOnce = 8;  // slots that are asked for before the first is added
  for (int64_t t = blockIdx.y; t < y.rows; t += gridDim.y) {
    const int64_t pairs = t * routing.top_k;
    float sum = start == SumStart::kZero ? 0.0f : y.data[t * y.stride + column];
    for (int first = 0; first < routing.top_k; first += kAtOnce) {
      int32_t from[kAtOnce];
      float weight[kAtOnce], value[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t pair = pairs + min(first + k, routing.top_k - 1);
        from[k] = slot[pair], weight[k] = routing.weights[pair];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) value[k] = slots.data[from[k] * slots.stride + column];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k < routing.top_k) sum = fmaf(weight[k], value[k], sum);
      }
    }
    y.data[t * y.stride + column] = sum;
  }
}

// The expert of a slot is the first that ends behind it.
__global__ void __launch_bounds__(kThreads) AddBiasRows(PlanView plan, const float* bias, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= y.cols) return;
  for (int64_t slot = blockIdx.y; slot < y.rows; slot += gridDim.y) {
    int low = 0, high = plan.experts - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (slot < plan.begin[middle + 1]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    float& out = y.data[slot * y.stride + column];
    out = out + bias[low * y.cols + column];
  }
}

}  // namespace

void AddExpertBias(Stream stream, const PlanView& plan, const float* bias, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  const dim3 grid(Blocks(y.cols, kThreads), RowBlocks(y.rows));
  LaunchEarly(AddBiasRows, grid, kThreads, 0, stream, plan, bias, y);
}

void RouteExperts(Stream stream, const View& logits, const RoutingParams& params,
                  const RoutingView& routing) {
  if (logits.rows == 0) return;
  const size_t bytes = size_t(logits.cols) * 2 * sizeof(float);
  LaunchEarly(RouteRows, static_cast<unsigned>(logits.rows), 32, bytes, stream, logits, params,
              NumbersOf(params), routing);
}

size_t PlanScratchBytes(int64_t slots, int experts) {
  return size_t(Blocks(slots, kChunk)) * size_t(experts) * sizeof(int32_t);
}

void PlanExperts(Stream stream, const RoutingView& routing, void* scratch, const PlanView& plan) {
  const unsigned chunks = Blocks(plan.slots, kChunk);
  int32_t* counts = static_cast<int32_t*>(scratch);
  const size_t bytes = size_t(plan.experts) * sizeof(int32_t);
  static_assert(kChunk <= kScanThreads);
  if (chunks <= 1) {
    return LaunchEarly(PlanChunk, 1, kScanThreads, bytes, stream, routing.experts,
                       static_cast<int>(plan.slots), routing.top_k, plan.experts, plan.begin,
                       plan.row, plan.slot);
  }
  LaunchEarly(CountChunk, chunks, kThreads, bytes, stream, routing.experts, plan.slots,
              plan.experts, counts);
  LaunchEarly(ScanCounts, 1, kScanThreads, 0, stream, static_cast<int>(chunks), plan.experts,
              counts, plan.begin);
  LaunchEarly(PlaceChunk, chunks, 32, bytes, stream, routing.experts, plan.slots, routing.top_k,
              plan.experts, counts, plan.row, plan.slot);
}

bool MayRouteAndPlan(const View& logits, const RoutingParams& params) {
  return logits.rows > 0 && logits.rows <= kRoutedRows && logits.cols <= kRoutedExperts &&
         params.top_k <= kRoutedChoices && params.groups == 1;
}

void RouteAndPlan(Stream stream, const View& logits, const RoutingParams& params,
                  const RoutingView& routing, const PlanView& plan) {
  (plan.experts <= 128   ? LaunchRouteAndPlan<4>
   : plan.experts <= 256 ? LaunchRouteAndPlan<8>
                         : LaunchRouteAndPlan<16>)(stream, logits, params, routing, plan);
}

void CombineExperts(Stream stream, const RoutingView& routing, const PlanView& plan,
                    const View& slots, SumStart start, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  const dim3 grid(Blocks(y.cols, kThreads), RowBlocks(y.rows));
  LaunchEarly(CombineRows, grid, kThreads, 0, stream, routing, plan.slot, slots, start, y);
}

}  // namespace reprise::cuda
