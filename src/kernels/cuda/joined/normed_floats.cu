// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/joined/normed_floats.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/tensor/mma.cuh"

// Bound by two chains, that of the norm and that of an output, and by what lies between them. So
// every block norms the row itself, has few outputs, and their weights are there before the row is:
// lane by lane as the row, so that one read gives four links.
namespace reprise::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kGroupsMost = 4;  // groups of four columns that a thread norms
constexpr int kPartsMost = 4;
constexpr int kEachMost = 8;  // outputs of a block: more are better off with a kernel for many
constexpr int kPiece = 4;     // links of a chain that are read at once
constexpr int kAhead = 4;     // pieces that are read before they are needed

struct Part {
  const float* weight;
  const float* bias;
  float* out;
  int begin;  // its first output
};
struct Call {
  const float* x;
  const float* norm;
  float* h;
  float eps;
  int cols;
  int outputs;
  int each;  // outputs of a block
  Part part[kPartsMost];
};

__device__ __forceinline__ const Part& PartOf(const Call& call, int output) {
  int which = 0;
  while (which + 1 < kPartsMost && output >= call.part[which + 1].begin) ++which;
  return call.part[which];
}

__device__ __forceinline__ void CopyAsync4(float* shared, const float* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}

__device__ __forceinline__ float4 Piece(const float* lane, int i) {
  return reinterpret_cast<const float4*>(lane)[i];
}
__device__ __forceinline__ float AddPiece(const float4& w, const float4& h, float sum) {
  sum = fmaf(w.x, h.x, sum);
  sum = fmaf(w.y, h.y, sum);
  sum = fmaf(w.z, h.z, sum);
  return fmaf(w.w, h.w, sum);
}

// The chain of a lane of an output. A piece is read while those before it are added.
__device__ __forceinline__ float Chain(const float* weights, const float* row, int pieces) {
  float4 w[kAhead], h[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (j < pieces) w[j] = Piece(weights, j), h[j] = Piece(row, j);
  }
  const int whole = pieces / kAhead * kAhead;
  float sum = 0;
#pragma unroll 1
  for (int i = 0; i < whole; i += kAhead) {
    const int next = i + kAhead < whole ? i + kAhead : i;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      sum = AddPiece(w[j], h[j], sum);
      w[j] = Piece(weights, next + j), h[j] = Piece(row, next + j);
    }
  }
#pragma unroll 1
  for (int i = whole; i < pieces; ++i) sum = AddPiece(Piece(weights, i), Piece(row, i), sum);
  return sum;
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads) NormedFloatsKernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(16) float shared[];  // the row, then weights: LaneRow each
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const auto column = [&](int j) { return 4 * (thread + j * kThreads); };
  const auto rows = [&](int i) {
    return LaneRow(shared + i * LaneRow::Floats(call.cols), call.cols);
  };
  const int first = static_cast<int>(blockIdx.x) * call.each;
  const int outputs = min(call.each, call.outputs - first);
#pragma unroll 1
  for (int i = 0; i < outputs; ++i) {
    const Part& part = PartOf(call, first + i);
    const float* from = part.weight + int64_t{first + i - part.begin} * call.cols;
#pragma unroll 1
    for (int c = thread; c < call.cols; c += kThreads) CopyAsync4(rows(1 + i).At(c), from + c);
  }
  CommitAsync();
  float4 weight[kGroups], x[kGroups];
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (column(j) < call.cols) weight[j] = LoadFour(call.norm + column(j));
  }
  WaitForInputs();
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (column(j) < call.cols) x[j] = LoadFour(call.x + column(j));
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (column(j) < call.cols) rows(0).Store(column(j), x[j]);
  }
  const float r = rows(0).NormFactor(thread, call.eps);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (column(j) >= call.cols) break;
    const float4 h = Normed(x[j], r, weight[j]);
    rows(0).Store(column(j), h);
    if (blockIdx.x == 0) *reinterpret_cast<float4*>(call.h + column(j)) = h;
  }
  WaitAsync<0>();
  __syncthreads();
  // 16 threads an output. A warp with one of them does it twice: all must call SumLanes.
  const int in_block = thread / kNormLanes, lane = thread % kNormLanes;
  if (thread / 32 * 2 >= outputs) return;
  const float* weights = rows(1 + min(in_block, outputs - 1)).At(lane);
  const float sum = SumLanes(Chain(weights, rows(0).At(lane), call.cols / (kNormLanes * kPiece)));
  if (lane != 0 || in_block >= outputs) return;
  const Part& part = PartOf(call, first + in_block);
  const int out = first + in_block - part.begin;
  part.out[out] = part.bias != nullptr ? sum + part.bias[out] : sum;
}

template <int kGroups>
void Launch(Stream stream, unsigned blocks, size_t bytes, const Call& call) {
  const auto kernel = NormedFloatsKernel<kGroups>;
  LaunchEarly(kernel, blocks, kThreads, bytes, stream, call);
}

}  // namespace

bool RunNormedFloats(Stream stream, const View& x, const InputNorm& norm,
                     std::span<const FloatProduct> products) {
  if (x.rows != 1 || x.cols == 0 || x.cols % (kNormLanes * kPiece) != 0 ||
      x.cols > 4 * kThreads * kGroupsMost || !Aligned16(x.data, 0) ||
      products.size() > kPartsMost) {
    return false;
  }
  Call call = {x.data, norm.weight, norm.h.data, norm.eps, int(x.cols), 0, 0, {}};
  int64_t outputs = 0;
  for (int i = 0; i < kPartsMost; ++i) {
    call.part[i].begin = INT32_MAX;
    if (i >= int(products.size())) continue;
    const FloatProduct& one = products[size_t(i)];
    call.part[i] = {one.weight, one.bias, one.out.data, int(outputs)};
    outputs += one.out.cols;
    if (outputs > int64_t{kEachMost} * ThisGpu().multiprocessors) return false;
  }
  if (outputs == 0) return false;
  call.outputs = int(outputs);
  call.each = CeilDiv(call.outputs, ThisGpu().multiprocessors);
  // Beside it there is what NormFactor has.
  const size_t bytes = size_t(1 + call.each) * size_t(LaneRow::Floats(call.cols)) * sizeof(float);
  if (bytes > ThisGpu().block_shared - 1024) return false;
  const int64_t groups = CeilDiv<int64_t>(x.cols, 4 * kThreads);
  (groups == 1   ? Launch<1>
   : groups == 2 ? Launch<2>
                 : Launch<kGroupsMost>)(stream, Blocks(outputs, call.each), bytes, call);
  return true;
}

}  // namespace reprise::cuda
