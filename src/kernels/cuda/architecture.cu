// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/check.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/launch.cuh"

namespace reprise::cuda {
namespace {

constexpr int kGpusMost = 1024;

// What counts is what the code was compiled for: code for an older GPU may run on a newer one.
struct Compiled {
  bool since_hopper;
  bool wgmma;
};
__device__ Compiled compiled_for = {kSinceHopper, kForWgmma};

// For tests that no machine of their own has a GPU for.
Architecture AsAsked(const Architecture& gpu) {
  const char* capability = std::getenv("REPRISE_GPU_AS");
  if (capability == nullptr) return gpu;
  const std::optional<Architecture> other = As(gpu, capability);
  if (!other) {
    std::fprintf(stderr, "REPRISE_GPU_AS: %s is no compute capability that has kernels here\n",
                 capability);
    std::exit(1);
  }
  return *other;
}

Architecture Ask(int device) {
  Architecture gpu;
  int shared = 0;
  cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  gpu.block_shared = static_cast<size_t>(shared);
  Compiled compiled = {};
  gpu.known = cudaMemcpyFromSymbol(&compiled, compiled_for, sizeof compiled) == cudaSuccess;
  if (!gpu.known) {
    cudaGetLastError();  // it is said, and no error of the launches to come
    return gpu;
  }
  gpu.early_launch = gpu.clusters = gpu.copy_engine = compiled.since_hopper;
  gpu.wgmma = compiled.wgmma;
  return AsAsked(gpu);
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
