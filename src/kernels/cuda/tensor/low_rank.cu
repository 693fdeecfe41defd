// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor/low_rank.h"
#include "kernels/cuda/tensor/mma.cuh"
#include "kernels/cuda/tensor/tiles.cuh"

namespace reprise::cuda {
namespace {

using reference::kTensorSlice;

constexpr int kTogether = 8;        // neighbouring rows with one adapter, which share its weights
constexpr int kLanes = 16;          // of products of floats
constexpr int64_t kRowsApart = 64;  // of a step, up to which every row has blocks of its own

struct Launch {
  LowRankCall call;
  int slices;
  int span;                           // rows that a block looks through
  int outputs;                        // up: of a block
  int begin[LowRankCall::kMost + 1];  // up: the first block of each product, and the end
};

// Rows [begin, begin + count) have one adapter, and this is what it adds to a product.
struct Run {
  const LowRankView* product = nullptr;  // null: nothing
  int64_t begin = 0;
  int count = 0;
};

// Calls act(run) for what begins in the block's rows.
template <typename Act>
__device__ __forceinline__ void ForRuns(const Launch& launch, int weight, const Act& act) {
  const LowRankCall& call = launch.call;
  const int64_t first = int64_t{blockIdx.y} * launch.span;
  const int64_t end = min(first + launch.span, call.x.rows);
#pragma unroll 1
  for (int64_t row = first; row < end; ++row) {
    const LowRankView* const table = call.tables[row];
    if (table == nullptr || table[weight].down == nullptr) continue;
    if (row % kTogether != 0 && call.tables[row - 1] == table) continue;
    Run run{table + weight, row, 1};
    while (row + run.count < call.x.rows && (row + run.count) % kTogether != 0 &&
           call.tables[row + run.count] == table) {
      ++run.count;
    }
    act(run);
  }
}

// --- Down: a warp has a slice of 16 rows of a narrow matrix -------------------------------------

constexpr int kDownWarps = 2;
constexpr int kDownThreads = kDownWarps * kWarp;
constexpr int kPitch = kTensorSlice + 8;  // rows of a slice lie in different banks
constexpr int kWarpHalves = (16 + kTogether) * kPitch;

// 512 columns of `rows` rows, `stride` apart; of them the first `cols` where there are less.
__device__ __forceinline__ void CopySlice(uint16_t* to, const uint16_t* from, int64_t stride,
                                          int rows, int64_t cols) {
  const int at = static_cast<int>(threadIdx.x) % kWarp * 8;
  constexpr int kHalf = kTensorSlice / 2;
  to += at, from += at;
#pragma unroll 4
  for (int r = 0; r < rows; ++r, to += kPitch, from += stride) {
    if (at < cols) CopyAsync16(to, from, true);
    if (at + kHalf < cols) CopyAsync16(to + kHalf, from + kHalf, true);
  }
  CommitAsync();
}

// The sums of 16 rows of weights with up to eight rows of x, in the order of the steps. Rows that
// are not there may be anything: rows and columns of products do not meet.
__device__ __forceinline__ void SliceSums(const uint16_t* weights, const uint16_t* x, int count,
                                          int steps, float (&acc)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint16_t* of_weights = weights + lane % 16 * kPitch + lane / 16 * 8;
  const uint16_t* of_x = x + min(lane / 4, count - 1) * kPitch + lane % 4 * 2;
#pragma unroll 4
  for (int s = 0; s < steps; ++s, of_weights += 16, of_x += 16) {
    uint32_t a[4];
    LoadMatrix4(a, of_weights);
    const uint32_t b0 = *reinterpret_cast<const uint32_t*>(of_x);
    const uint32_t b1 = *reinterpret_cast<const uint32_t*>(of_x + 8);
    Mma<Half::kF16>(acc, a, b0, b1);
  }
}

// Floats: 16 lanes over all of K; teams of threads take rows of the narrow matrix in turn. All
// threads of a warp call.
__device__ __noinline__ void DownFloats(const Launch& launch, const Run& run, int product,
                                        int first) {
  const LowRankCall& call = launch.call;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int teams = static_cast<int>(gridDim.x) * kDownThreads / kLanes;
  const int end = min(first + 16, run.product->rank);
  const int warp_first =
      first +
      (static_cast<int>(blockIdx.x) * kDownWarps + static_cast<int>(threadIdx.x) / kWarp) * 2;
  for (int pair = warp_first; pair < end; pair += teams) {
    const int r = pair + static_cast<int>(threadIdx.x) % kWarp / kLanes;
    const auto* weights = static_cast<const float*>(run.product->down) +
                          int64_t{min(r, end - 1)} * run.product->down_stride;
    float sum[kTogether] = {};
#pragma unroll 4
    for (int64_t i = lane; i < call.x.cols; i += kLanes) {
      const float w = weights[i];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int64_t row = run.begin + min(j, run.count - 1);
        sum[j] = fmaf(w, call.x.data[row * call.x.stride + i], sum[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const float total = SumLanes(sum[j]);
      if (lane != 0 || r >= end || j >= run.count) continue;
      const int64_t row = product * call.x.rows + run.begin + j;
      call.sums[row * launch.slices * call.ranks + r] = total;
    }
  }
}

__global__ void __launch_bounds__(kDownThreads) DownKernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) uint16_t shared[];
  const LowRankCall& call = launch.call;
  const int tiles = call.ranks / 16;
  const int product = static_cast<int>(blockIdx.z) / tiles;
  const int first = static_cast<int>(blockIdx.z) % tiles * 16;  // row of the narrow matrix
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int slice = static_cast<int>(blockIdx.x) * kDownWarps + warp;
  const int64_t k = int64_t{slice} * kTensorSlice;
  uint16_t* const weights = shared + warp * kWarpHalves;
  uint16_t* const x = weights + 16 * kPitch;
  bool waited = false, let = false;
  const auto wait = [&] {
    if (!waited) WaitForInputs();
    waited = true;
  };
  ForRuns(launch, call.weight[product], [&](const Run& run) {
    const LowRankView& one = *run.product;
    if (first >= one.rank) return;
    if (one.down_floats != 0) {
      wait();
      return DownFloats(launch, run, product, first);
    }
    if (slice >= launch.slices) return;
    const int64_t cols = call.half.stride - k;
    const auto* from = static_cast<const uint16_t*>(one.down) + int64_t{first} * one.down_stride;
    CopySlice(weights, from + k, one.down_stride, min(one.rank - first, 16), cols);
    wait();
    CopySlice(x, call.half.data + run.begin * call.half.stride + k, call.half.stride, run.count,
              cols);
    WaitAsync<0>();
    __syncwarp();
    if (!let) LetNextStart();  // not before: its weights would come before this row
    let = true;
    float acc[4] = {0, 0, 0, 0};
    SliceSums(weights, x, run.count, static_cast<int>(min(cols, int64_t{kTensorSlice}) / 16), acc);
    __syncwarp();  // all have read what the next run replaces
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = lane % 4 * 2 + e % 2;
      if (j >= run.count) continue;
      const int64_t row = product * call.x.rows + run.begin + j;
      call.sums[(row * launch.slices + slice) * call.ranks + first + lane / 4 + e / 2 * 8] = acc[e];
    }
  });
  wait();
  if (!let) LetNextStart();
}

// --- Up: a block has some outputs, whose weights are in shared memory --------------------------

constexpr int kUpThreads = 128;
constexpr int kUpMost = 512;             // outputs
constexpr int kUpHalves = kUpMost * 32;  // of their weights
constexpr int UpOutputs(int ranks) { return std::min(kUpMost, kUpHalves / ranks / 16 * 16); }
static_assert(UpOutputs(kLowRankMost) == 16);

__device__ __forceinline__ void CopyAsync4(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}

// scale * (down x) of a run: [kTogether][ranks] in shared memory, zeros behind the rank.
struct Between {
  float* values;
  float* scale;  // [kTogether] of their rounding

  __device__ __forceinline__ float* row(int j, int ranks) const { return values + j * ranks; }
};

// Rare: values that do not fit. By a thread for each row.
__device__ __noinline__ float ScaleOf(const float* row, int rank) {
  float largest = 0;
  for (int r = 0; r < rank; ++r) {
    const float magnitude = fabsf(row[r]);
    largest = magnitude > largest || isnan(magnitude) ? magnitude : largest;
    if (isnan(magnitude)) break;
  }
  return RowScale(largest);
}

// The whole block calls. Slices are added as they come.
__device__ __forceinline__ void MakeBetween(const Launch& launch, const Run& run, int product,
                                            const Between& between) {
  const LowRankCall& call = launch.call;
  const LowRankView& one = *run.product;
  bool large = false;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < run.count * call.ranks; i += kUpThreads) {
    const int j = i / call.ranks, r = i % call.ranks;
    const int64_t row = product * call.x.rows + run.begin + j;
    const float* sums = call.sums + row * launch.slices * call.ranks + r;
    float total = 0;
    if (r < one.rank) {
      const float half_scale = call.half.scale[run.begin + j];
      total = sums[0];
      if (one.down_floats == 0) {
#pragma unroll 8
        for (int s = 1; s < launch.slices; ++s) total += sums[s * call.ranks];
        total *= half_scale * one.down_scale;
      }
      total *= one.scale;
    }
    between.values[i] = total;
    large |= !(fabsf(total) < 65520.0f);
  }
  if (threadIdx.x < kTogether) between.scale[threadIdx.x] = 1;
  if (__syncthreads_or(large) == 0) return;
  const int j = static_cast<int>(threadIdx.x);
  if (j < run.count) between.scale[j] = ScaleOf(between.row(j, call.ranks), one.rank);
  __syncthreads();
}

// A tile of 16 outputs: chains over slices of the rank. b0, b1: of the first 16 columns.
__device__ __forceinline__ void UpSums(const float* row, float inverse, int stride,
                                       const uint16_t* weights, uint32_t b0, uint32_t b1,
                                       float (&acc)[4]) {
  float total[4];
#pragma unroll 1
  for (int k = 0;; k += 16) {
    uint32_t a[4];
    LoadMatrix4(a, weights + k);
    Mma<Half::kF16>(acc, a, b0, b1);
    if (k + 16 >= stride) break;
    b0 = Pack2<Half::kF16>(row[k + 16] * inverse, row[k + 17] * inverse);
    b1 = Pack2<Half::kF16>(row[k + 24] * inverse, row[k + 25] * inverse);
    if ((k + 16) % kTensorSlice != 0) continue;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      total[e] = k < kTensorSlice ? acc[e] : total[e] + acc[e];
      acc[e] = 0;
    }
  }
  if (stride <= kTensorSlice) return;
#pragma unroll
  for (int e = 0; e < 4; ++e) acc[e] = total[e] + acc[e];
}

// Of floats: one thread an output, which has all 16 lanes.
__device__ __noinline__ void UpFloats(const Launch& launch, const Run& run, const View& out,
                                      int64_t first, const Between& between) {
  const LowRankView& one = *run.product;
  const int64_t end = min(first + launch.outputs, out.cols);
  for (int64_t i = first + threadIdx.x; i < end; i += kUpThreads) {
    const auto* weights = static_cast<const float*>(one.up) + i * one.up_stride;
    for (int j = 0; j < run.count; ++j) {
      const float* row = between.row(j, launch.call.ranks);
      float sum[kLanes] = {};
      for (int k = 0; k < one.rank; k += kLanes) {
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) {
          if (k + lane < one.rank) sum[lane] = fmaf(weights[k + lane], row[k + lane], sum[lane]);
        }
      }
#pragma unroll
      for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma unroll
        for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
      }
      float* const to = out.data + (run.begin + j) * out.stride + i;
      *to = *to + sum[0];
    }
  }
}

// Adds what the tiles of this block are to `sums` [kTogether][kUpMost], of the outputs so far.
__device__ __forceinline__ void AddTiles(const Launch& launch, const Run& run,
                                         const Between& between, const uint16_t* weights,
                                         float* sums) {
  const LowRankView& one = *run.product;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int stride = one.up_stride;
  const int j = min(g, run.count - 1);  // behind the last row: rows of x do not meet
  const float* row = between.row(j, launch.call.ranks) + 2 * t;
  const float inverse = 1 / between.scale[j];
  const uint32_t b0 = Pack2<Half::kF16>(row[0] * inverse, row[1] * inverse);
  const uint32_t b1 = Pack2<Half::kF16>(row[8] * inverse, row[9] * inverse);
  const float scale[2] = {between.scale[2 * t] * one.up_scale,
                          between.scale[2 * t + 1] * one.up_scale};
  const uint16_t* of_lane = weights + lane % 16 * stride + lane / 16 * 8;
#pragma unroll 2
  for (int first = warp * 16; first < launch.outputs; first += kUpThreads / kWarp * 16) {
    float acc[4] = {0, 0, 0, 0};
    UpSums(row, inverse, stride, of_lane + first * stride, b0, b1, acc);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int to = 2 * t + e % 2;
      if (to >= run.count) continue;
      float& sum = sums[to * kUpMost + first + g + e / 2 * 8];
      sum = sum + acc[e] * scale[e % 2];
    }
  }
}

__global__ void __launch_bounds__(kUpThreads) UpKernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) float up_memory[];
  const LowRankCall& call = launch.call;
  float* const sums = up_memory;
  auto* const weights = reinterpret_cast<uint16_t*>(sums + kTogether * kUpMost);
  float* const scales = reinterpret_cast<float*>(weights + launch.outputs * call.ranks);
  const Between between{scales + kTogether, scales};
  const int block = static_cast<int>(blockIdx.x);
  int product = 0;
  while (block >= launch.begin[product + 1]) ++product;
  const View& out = call.out[product];
  const int64_t first = int64_t{block - launch.begin[product]} * launch.outputs;
  const int outputs = static_cast<int>(min(int64_t{launch.outputs}, out.cols - first));
  bool waited = false;
  ForRuns(launch, call.weight[product], [&](const Run& run) {
    const LowRankView& one = *run.product;
    const bool floats = one.up_floats != 0;
    if (waited) __syncthreads();  // all have read what was between, and the weights
    if (!floats) {
      const auto* from = static_cast<const uint16_t*>(one.up) + first * one.up_stride;
#pragma unroll 4
      for (int i = threadIdx.x * 8; i < outputs * one.up_stride; i += kUpThreads * 8) {
        CopyAsync16(weights + i, from + i, true);
      }
    }
    if (!waited) {
      WaitForInputs();
      LetNextStart();
    }
    waited = true;
    float* const to = out.data + run.begin * out.stride + first;
    for (int j = 0; j < run.count && !floats; ++j) {
#pragma unroll 4
      for (int i = threadIdx.x; i < outputs; i += kUpThreads) {
        CopyAsync4(sums + j * kUpMost + i, to + j * out.stride + i);
      }
    }
    CommitAsync();
    MakeBetween(launch, run, product, between);
    if (floats) return UpFloats(launch, run, out, first, between);
    WaitAsync<0>();
    __syncthreads();
    AddTiles(launch, run, between, weights, sums);
    __syncthreads();
    for (int j = 0; j < run.count; ++j) {
#pragma unroll 4
      for (int i = threadIdx.x; i < outputs; i += kUpThreads) {
        to[j * out.stride + i] = sums[j * kUpMost + i];
      }
    }
  });
  if (!waited) WaitForInputs();
}

Launch LaunchOf(const LowRankCall& call) {
  Launch launch{call,
                static_cast<int>(LowRankSlices(call.x.cols)),
                call.x.rows <= kRowsApart ? 1 : kTogether,
                UpOutputs(call.ranks),
                {}};
  for (int i = 0; i < LowRankCall::kMost; ++i) {
    const unsigned blocks = i < call.count ? Blocks(call.out[i].cols, launch.outputs) : 0;
    launch.begin[i + 1] = launch.begin[i] + static_cast<int>(blocks);
  }
  return launch;
}

}  // namespace

void RunLowRankDown(Stream stream, const LowRankCall& call) {
  const Launch launch = LaunchOf(call);
  const dim3 grid(Blocks(launch.slices, kDownWarps), Blocks(call.x.rows, launch.span),
                  unsigned(call.count * call.ranks / 16));
  constexpr size_t kShared = size_t{kDownWarps} * kWarpHalves * sizeof(uint16_t);
  static_assert(kShared <= kBlockSharedLeast);
  LaunchEarly(DownKernel, grid, kDownThreads, kShared, stream, launch);
}

void RunLowRankUp(Stream stream, const LowRankCall& call) {
  const Launch launch = LaunchOf(call);
  const dim3 grid(unsigned(launch.begin[LowRankCall::kMost]), Blocks(call.x.rows, launch.span));
  const size_t shared = size_t(kTogether * (kUpMost + 1 + call.ranks)) * sizeof(float) +
                        size_t(launch.outputs * call.ranks) * sizeof(uint16_t);
  LaunchEarly(UpKernel, grid, kUpThreads, shared, stream, launch);
}

}  // namespace reprise::cuda
