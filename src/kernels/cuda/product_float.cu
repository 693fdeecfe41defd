// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product_float.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 16;
constexpr int kTeams = kThreads / kLanes;  // 16 threads that hold the lanes of some outputs

// kRows rows of weights times kTokens tokens by one team; `token` gives the row of x of each.
template <int kRows, int kTokens>
__device__ void TeamProduct(const float* const (&w)[kRows], const float* const (&x)[kTokens],
                            int64_t cols, int lane, float (&sum)[kRows][kTokens]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[r][t] = 0;
  }
#pragma unroll 4
  for (int64_t i = lane; i < cols; i += kLanes) {
    float a[kRows], b[kTokens];
#pragma unroll
    for (int r = 0; r < kRows; ++r) a[r] = w[r][i];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) b[t] = x[t][i];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sum[r][t] = fmaf(a[r], b[t], sum[r][t]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sum[r][t] = SumLanes(sum[r][t]);
  }
}

// Tokens [begin, end) of y, a block of kTeams * kRows weight rows and kTokens tokens. row: the row
// of x of a token, or null for its own.
template <int kRows, int kTokens>
__device__ void BlockProduct(const float* weight, const float* bias, const int32_t* row,
                             int64_t begin, int64_t end, const View& x, const View& y) {
  const int lane = threadIdx.x % kLanes;
  const int64_t first = (int64_t{blockIdx.x} * kTeams + threadIdx.x / kLanes) * kRows;
  const float* w[kRows];
  const float* in[kTokens];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    w[r] = weight + (first + r < y.cols ? first + r : y.cols - 1) * x.cols;
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int64_t token = begin + t < end ? begin + t : end - 1;
    in[t] = x.data + (row != nullptr ? row[token] : token) * x.stride;
  }
  float sum[kRows][kTokens];
  TeamProduct<kRows, kTokens>(w, in, x.cols, lane, sum);
  if (lane != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (first + r >= y.cols || begin + t >= end) continue;
      const float value = bias != nullptr ? sum[r][t] + bias[first + r] : sum[r][t];
      y.data[(begin + t) * y.stride + first + r] = value;
    }
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(kThreads)
    TokenProducts(const float* weight, const float* bias, View x, View y) {
  for (int64_t t = int64_t{blockIdx.y} * kTokens; t < y.rows; t += int64_t{gridDim.y} * kTokens) {
    BlockProduct<kRows, kTokens>(weight, bias, nullptr, t, y.rows, x, y);
  }
}

template <int kRows, int kTokens>
__global__ void __launch_bounds__(kThreads)
    ExpertProducts(const float* weight, PlanView plan, bool gather, View x, View y) {
  const int expert = static_cast<int>(blockIdx.z);
  const float* of_expert = weight + expert * y.cols * x.cols;
  const int64_t end = plan.begin[expert + 1];
  for (int64_t s = plan.begin[expert] + int64_t{blockIdx.y} * kTokens; s < end;
       s += int64_t{gridDim.y} * kTokens) {
    BlockProduct<kRows, kTokens>(of_expert, nullptr, gather ? plan.row : nullptr, s, end, x, y);
  }
}

template <int kRows, int kTokens>
void LaunchTokens(Stream stream, const float* weight, const float* bias, const View& x,
                  const View& y) {
  const dim3 grid(Blocks(y.cols, kTeams * kRows), RowBlocks(Blocks(y.rows, kTokens)));
  TokenProducts<kRows, kTokens><<<grid, kThreads, 0, stream>>>(weight, bias, x, y);
}

}  // namespace

void ProductF32(Stream stream, const float* weight, const float* bias, const View& x,
                const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  if (y.rows == 1) {
    LaunchTokens<1, 1>(stream, weight, bias, x, y);
  } else if (y.rows <= 4) {
    LaunchTokens<2, 4>(stream, weight, bias, x, y);
  } else {
    LaunchTokens<4, 8>(stream, weight, bias, x, y);
  }
}

void ExpertsProductF32(Stream stream, const float* weight, const PlanView& plan, bool gather,
                       const View& x, const View& y) {
  if (plan.slots == 0 || y.cols == 0) return;
  constexpr int kRows = 2, kTokens = 4;
  const int64_t each = (plan.slots + plan.experts - 1) / plan.experts;
  const dim3 grid(Blocks(y.cols, kTeams * kRows), RowBlocks(Blocks(each, kTokens)),
                  static_cast<unsigned>(plan.experts));
  ExpertProducts<kRows, kTokens><<<grid, kThreads, 0, stream>>>(weight, plan, gather, x, y);
}

}  // namespace reprise::cuda
