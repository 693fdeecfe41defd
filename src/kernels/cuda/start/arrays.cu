// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/start/arrays.h"

namespace reprise::cuda {
namespace {

constexpr int kThreads = 512;

// Kernels behind it read the arrays before they wait for what is in front of them, so none may
// start before this one has ended.
__global__ void __launch_bounds__(kThreads) BringKernel(const uint4* from, int count, uint4* to) {
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kThreads) to[i] = from[i];
  __threadfence();
}

}  // namespace

void BringArrays(Stream stream, const HostArrays& arrays) {
  const auto& [from, bytes, to] = arrays;
  if (arrays.few()) {
    LaunchInTurn(BringKernel, 1, kThreads, 0, stream, reinterpret_cast<const uint4*>(from),
                 int(bytes / sizeof(uint4)), reinterpret_cast<uint4*>(to));
    return;
  }
  CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess);
}

}  // namespace reprise::cuda
