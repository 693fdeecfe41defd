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

struct Capability {
  std::string_view number;
  size_t block_shared;
  bool since_hopper, wgmma;
};

constexpr Capability kCapabilities[] = {
    {"8.0", 163 << 10, false, false},  // A100, A30
    {"8.6", 99 << 10, false, false},   // RTX 30, A10, A40
    {"8.7", 163 << 10, false, false},  // Orin
    {"8.9", 99 << 10, false, false},   // RTX 40, L4, L40
    {"9.0", 227 << 10, true, true},    // H100, H200
    {"10.0", 227 << 10, true, false},  // B200
    {"10.3", 227 << 10, true, false},  // B300
    {"12.0", 99 << 10, true, false},   // RTX 50, RTX PRO 6000
    {"12.1", 99 << 10, true, false},   // GB10
};

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

std::optional<Architecture> As(Architecture gpu, std::string_view capability) {
  for (const Capability& one : kCapabilities) {
    if (one.number != capability) continue;
    gpu.early_launch &= one.since_hopper;
    gpu.clusters &= one.since_hopper;
    gpu.copy_engine &= one.since_hopper;
    gpu.wgmma &= one.wgmma;
    gpu.block_shared = std::min(gpu.block_shared, one.block_shared);
    return gpu;
  }
  return std::nullopt;
}

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
