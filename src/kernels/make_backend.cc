// SPDX-License-Identifier: Apache-2.0
#include "kernels/make_backend.h"

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "device/thread_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#ifdef REPRISE_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace reprise {
namespace {

constexpr std::string_view kCuda = "cuda";
constexpr int kOrdinalMax = 1023;

// The number behind "cuda:"; 0 where there is none, -1 where it is not one.
int CudaOrdinal(std::string_view device) {
  device.remove_prefix(kCuda.size());
  if (device.empty()) return 0;
  int ordinal = -1;
  const char* end = device.data() + device.size();
  const auto parsed = std::from_chars(device.data() + 1, end, ordinal);
  const bool number = device.front() == ':' && parsed.ec == std::errc() && parsed.ptr == end;
  return number && ordinal >= 0 && ordinal <= kOrdinalMax ? ordinal : -1;
}

Result<std::unique_ptr<Backend>> MakeCuda([[maybe_unused]] int ordinal,
                                          [[maybe_unused]] const DeviceOptions& options) {
#ifdef REPRISE_CUDA
  return cuda::CudaBackend::Make(ordinal, options.threads, options.memory_max);
#else
  return Unimplemented("this program was built without CUDA: --device cuda needs `make cuda`");
#endif
}

}  // namespace

Result<std::unique_ptr<Backend>> MakeBackend(const DeviceOptions& options) {
  if (options.device.starts_with(kCuda)) {
    const int ordinal = CudaOrdinal(options.device);
    if (ordinal >= 0) return MakeCuda(ordinal, options);
  }
  if (options.device == "auto") {
    Result<std::unique_ptr<Backend>> cuda = MakeCuda(0, options);
    if (cuda.ok()) return cuda;
  } else if (options.device != "cpu") {
    return InvalidArgument("device '" + options.device +
                           "' is unknown: take auto, cpu, cuda or cuda:<number>");
  }
  if (options.memory_max > 0) {
    return InvalidArgument(
        "the memory of a GPU was limited, but the CPU computes: give --device cuda, or leave "
        "--vram-mib out");
  }
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(
      std::make_unique<ThreadPool>(options.threads), &cpu::ActiveTable()));
}

}  // namespace reprise
