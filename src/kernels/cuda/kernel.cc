// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/kernel.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/cuda/architecture.h"

namespace reprise::cuda {

Launches& Launches::On(Stream stream) {
  static std::mutex mutex;
  static std::map<Stream, Launches> all;
  const std::lock_guard lock(mutex);
  return all[stream];
}

void Launches::Fail(Status error) {
  if (error_.ok()) error_ = std::move(error);
}

Status Launches::Take() { return std::exchange(error_, OkStatus()); }

Kernel& Kernel::Of(const void* function) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::unique_ptr<Kernel>> all;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  std::unique_ptr<Kernel>& kernel = all[{device, function}];
  if (kernel == nullptr) kernel.reset(new Kernel(function, device));
  return *kernel;
}

Kernel::Kernel(const void* function, int device) : function_(function), device_(device) {
  cudaFuncAttributes compiled = {};
  found_ = cudaFuncGetAttributes(&compiled, function);
  if (found_ != cudaSuccess) cudaGetLastError();  // it is said where the kernel is started
  declared_ = compiled.sharedSizeBytes;
  granted_ = size_t(compiled.maxDynamicSharedSizeBytes);
}

std::string Kernel::name() const {
  const char* symbol = nullptr;
  if (cudaFuncGetName(&symbol, function_) != cudaSuccess || symbol == nullptr) {
    cudaGetLastError();
    return "a kernel without a name";
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? plain.get() : symbol;
}

std::string Kernel::GrantShared(size_t bytes) {
  if (bytes <= granted_) return "";
  if (declared_ + bytes > ThisGpu().block_shared ||
      cudaFuncSetAttribute(function_, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)) !=
          cudaSuccess) {
    cudaGetLastError();
    return "a block of it needs " + std::to_string(declared_ + bytes) +
           " bytes of shared memory and may have " + std::to_string(ThisGpu().block_shared);
  }
  granted_ = bytes;
  return "";
}

// The models of one server start the same kernels, each on a thread of its own: what was granted to
// one must not be taken back by another that needs less.
std::string Kernel::Grant(const LaunchNeeds& needs) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (found_ != cudaSuccess) return cudaGetErrorString(found_);
  if (needs.team > 1 && !ThisGpu().clusters) return "the GPU has no clusters of blocks";
  if (needs.division != LaunchNeeds::Division::kAny && needs.division != division_) {
    // A wish: what the GPU makes of it changes no result.
    cudaFuncSetAttribute(function_, cudaFuncAttributePreferredSharedMemoryCarveout,
                         needs.division == LaunchNeeds::Division::kShared
                             ? cudaSharedmemCarveoutMaxShared
                             : cudaSharedmemCarveoutMaxL1);
    division_ = needs.division;
  }
  return GrantShared(needs.shared);
}

void Kernel::Start(const LaunchNeeds& needs, dim3 grid, dim3 threads, Stream stream,
                   void** arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  Launches& launches = Launches::On(stream);
  if (launches.failed()) return;
  std::string missing = launches.planted() ? "it was asked to fail" : Grant(needs);
  if (missing.empty()) {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = needs.shared;
    config.stream = stream;
    config.attrs = attributes;
    if (needs.early && ThisGpu().early_launch) {
      cudaLaunchAttribute& early = attributes[config.numAttrs++];
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (needs.team > 1) {
      cudaLaunchAttribute& team = attributes[config.numAttrs++];
      team.id = cudaLaunchAttributeClusterDimension;
      team.val.clusterDim = {unsigned(needs.team), 1, 1};
    }
    const cudaError_t error = cudaLaunchKernelExC(&config, function_, arguments);
    if (error == cudaSuccess) return;
    cudaGetLastError();
    missing = cudaGetErrorString(error);
  }
  launches.Fail(
      Internal("GPU " + std::to_string(device_) + " did not start " + name() + ": " + missing));
}

}  // namespace reprise::cuda
