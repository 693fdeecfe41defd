// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/quantised/quantise.cuh"
#include "kernels/cuda/quantised/quantise.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 128;

// Eight values a thread: 4 threads hold a block of 32, 32 threads one of 256.
constexpr int kValues = 8;

template <int kBlock>
__global__ void __launch_bounds__(kThreads) QuantiseRows(View x, QuantisedView to) {
  WaitForInputs();
  LetNextStart();
  const int64_t per_row = x.cols / kValues;
  // Whole warps stay: a thread behind the end works on the last values and stores nothing.
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool inside = index < per_row;
  const int64_t column = (inside ? index : per_row - 1) * kValues;
  for (int64_t row = blockIdx.y; row < x.rows; row += gridDim.y) {
    const float* from = x.data + row * x.stride + column;
    float value[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i) value[i] = from[i];
    const EightQuantised eight = QuantiseEight<kBlock>(value);
    constexpr int kSummed = kBlock == 32 ? 32 : 16;
    if (!inside) continue;
    *reinterpret_cast<uint2*>(to.q + row * to.cols + column) =
        make_uint2(eight.words[0], eight.words[1]);
    if (column % kSummed == 0) {
      to.sum[row * (to.cols / kSummed) + column / kSummed] = static_cast<int16_t>(eight.sum);
    }
    if (column % kBlock == 0) {
      to.scale[row * (to.cols / kBlock) + column / kBlock] = eight.scale;
    }
  }
}

template <int kBlock>
void Launch(Stream stream, const View& x, const QuantisedView& to) {
  if (x.rows == 0 || x.cols == 0) return;
  const dim3 grid(Blocks(x.cols, kThreads * kValues), RowBlocks(x.rows));
  LaunchEarly(QuantiseRows<kBlock>, grid, kThreads, 0, stream, x, to);
}

}  // namespace

void Quantise32(Stream stream, const View& x, const QuantisedView& to) {
  Launch<32>(stream, x, to);
}
void Quantise256(Stream stream, const View& x, const QuantisedView& to) {
  Launch<256>(stream, x, to);
}

}  // namespace reprise::cuda
