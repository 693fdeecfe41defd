// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows/heads.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void CopyKernel(int heads, int64_t width, View x, int64_t x_step, View y,
                           int64_t y_step) {
  WaitForInputs();
  LetNextStart();
  const int64_t row = blockIdx.x;
  const float* from = x.data + row * x.stride;
  float* to = y.data + row * y.stride;
  for (int64_t i = threadIdx.x; i < heads * width; i += kThreads) {
    const int64_t head = i / width;
    to[head * y_step + i % width] = from[head * x_step + i % width];
  }
}

}  // namespace

void CopyHeads(Stream stream, int heads, int64_t width, const View& x, int64_t x_step,
               const View& y, int64_t y_step) {
  LaunchEarly(CopyKernel, unsigned(y.rows), kThreads, 0, stream, heads, width, x, x_step, y,
              y_step);
}

}  // namespace reprise::cuda
