// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_ops.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/sum_of_squares.cuh"
#include "kernels/cuda/streams/streams.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = kNormLanes;

// 16 threads a row.
__global__ void __launch_bounds__(kThreads) MatchRows(View x, View like, float least, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes;
  // Threads without a row of their own repeat the last one up to the shuffles of its sums.
  const int64_t mine = row < y.rows ? row : y.rows - 1;
  const float* in = x.data + mine * x.stride;
  const float* other = like.data + mine * like.stride;
  const auto n = static_cast<float>(y.cols);
  const float wanted = sqrtf(SumOfSquares([&](int64_t i) { return other[i]; }, lane, y.cols) / n);
  const float mean_square = SumOfSquares([&](int64_t i) { return in[i]; }, lane, y.cols) / n;
  const float magnitude = sqrtf(mean_square < least ? least : mean_square);
  if (row >= y.rows) return;
  float* out = y.data + row * y.stride;
  for (int64_t i = lane; i < y.cols; i += kLanes) out[i] = (in[i] * wanted) / magnitude;
}

__global__ void __launch_bounds__(kThreads)
    ScaleRows(const int32_t* positions, const float* factors, int period, View x, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= y.cols) return;
  for (int64_t row = blockIdx.y; row < y.rows; row += gridDim.y) {
    y.data[row * y.stride + column] =
        x.data[row * x.stride + column] * factors[positions[row] / period];
  }
}

// One thread a column of all streams.
__global__ void __launch_bounds__(kThreads) MixRows(View x, View factors, int streams, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t width = x.cols / streams;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= width) return;
  for (int64_t row = blockIdx.y; row < y.rows; row += gridDim.y) {
    const float* factor = factors.data + row * factors.stride;
    float in[kMostStreams];
#pragma unroll
    for (int j = 0; j < kMostStreams; ++j) {
      in[j] = j < streams ? x.data[row * x.stride + j * width + column] : 0;
    }
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i >= streams) break;
      float sum = factor[i * streams] * in[0];
#pragma unroll
      for (int j = 1; j < kMostStreams; ++j) {
        if (j < streams) sum += factor[i * streams + j] * in[j];
      }
      y.data[row * y.stride + i * width + column] = sum + in[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads) AddToRows(View x, View factors, View y) {
  WaitForInputs();
  LetNextStart();
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= x.cols) return;
  for (int64_t row = blockIdx.y; row < y.rows; row += gridDim.y) {
    const float value = x.data[row * x.stride + column];
    const float* factor = factors.data + row * factors.stride;
    for (int64_t i = 0; i < factors.cols; ++i) {
      float* out = y.data + row * y.stride + i * x.cols + column;
      *out += (factor[i] + 1.0f) * value;
    }
  }
}

dim3 GridOf(const View& shape, int64_t cols) {
  return dim3(Blocks(cols, kThreads), RowBlocks(shape.rows));
}

}  // namespace

void MatchMagnitude(Stream stream, const View& x, const View& like, float least, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  LaunchEarly(MatchRows, Blocks(y.rows * kLanes, kThreads), kThreads, 0, stream, x, like, least, y);
}
void ScaleByPosition(Stream stream, const int32_t* positions, const float* factors, int period,
                     const View& x, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  LaunchEarly(ScaleRows, GridOf(y, y.cols), kThreads, 0, stream, positions, factors, period, x, y);
}
void MixStreams(Stream stream, const View& x, const View& factors, int streams, const View& y) {
  if (y.rows == 0 || y.cols == 0) return;
  LaunchEarly(MixRows, GridOf(y, y.cols / streams), kThreads, 0, stream, x, factors, streams, y);
}
void AddToStreams(Stream stream, const View& x, const View& factors, const View& y) {
  if (y.rows == 0 || x.cols == 0) return;
  LaunchEarly(AddToRows, GridOf(y, x.cols), kThreads, 0, stream, x, factors, y);
}

}  // namespace reprise::cuda
