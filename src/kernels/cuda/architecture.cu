// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <mutex>

#include "base/check.h"
#include "kernels/cuda/architecture.h"

namespace reprise::cuda {
namespace {

constexpr int kGpusMost = 1024;

__global__ void AnyKernel() {}

Architecture Ask(int device) {
  Architecture gpu;
  int shared = 0;
  cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  gpu.block_shared = static_cast<size_t>(shared);
  cudaFuncAttributes compiled = {};
  gpu.known = cudaFuncGetAttributes(&compiled, AnyKernel) == cudaSuccess;
  if (!gpu.known) cudaGetLastError();  // it is said, and no error of the launches to come
  // What counts is what the code was compiled for: code for an older GPU may run on a newer one.
  gpu.hopper = gpu.known && compiled.ptxVersion / 10 == 9;
  return gpu;
}

}  // namespace

const Architecture& ThisGpu() {
  static std::once_flag asked[kGpusMost];
  static Architecture gpus[kGpusMost];
  int device = 0;
  cudaGetDevice(&device);
  CHECK(device < kGpusMost);
  std::call_once(asked[device], [&] { gpus[device] = Ask(device); });
  return gpus[device];
}

}  // namespace reprise::cuda
