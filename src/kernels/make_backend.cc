// SPDX-License-Identifier: Apache-2.0
#include "kernels/make_backend.h"

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
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

Status StateSizes::Within(const StateSizes& most) const {
  const struct {
    int64_t size, limit;
    const char* what;
  } all[] = {{head_dim, most.head_dim, "attention heads of width "},
             {value_dim, most.value_dim, "values of width "},
             {conv_reach, most.conv_reach, "a convolution over "},
             {matrix_keys, most.matrix_keys, "recurrent states with so many keys: "},
             {channel_keys, most.channel_keys, "Mamba states of size "}};
  for (const auto& [size, limit, what] : all) {
    if (limit == 0 || size <= limit) continue;
    return Unimplemented(std::string("the model has ") + what + std::to_string(size) +
                         ", and the device computes up to " + std::to_string(limit) +
                         "; run it with --device cpu");
  }
  return OkStatus();
}

std::vector<std::string> BuiltBackends() {
#ifdef REPRISE_CUDA
  return {"cpu", std::string(kCuda)};
#else
  return {"cpu"};
#endif
}

std::string WhyNotTheGpu(const Status& refused) {
  const bool none = refused.code() == StatusCode::kNotFound ||       // nor looked for
                    refused.code() == StatusCode::kUnimplemented;
  return none ? "" : "the CPU computes, though there is a GPU: " + refused.message();
}

Result<std::unique_ptr<Backend>> MakeBackend(const DeviceOptions& options) {
  if (options.device.starts_with(kCuda)) {
    const int ordinal = CudaOrdinal(options.device);
    if (ordinal >= 0) return MakeCuda(ordinal, options);
  }
  if (options.device == "auto") {
    Result<std::unique_ptr<Backend>> cuda = MakeCuda(0, options);
    if (cuda.ok()) return cuda;
    if (const std::string why = WhyNotTheGpu(cuda.status()); !why.empty()) {
      Log(LogLevel::kWarning, why);
    }
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
