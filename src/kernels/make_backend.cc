// SPDX-License-Identifier: Apache-2.0
#include "kernels/make_backend.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

Status NoGpuToLimit() {
  return InvalidArgument(
      "the memory of a GPU was limited, but the CPU computes: give --device cuda, or leave "
      "--vram-mib out");
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
  const bool none = refused.code() == StatusCode::kNotFound ||  // nor looked for
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
  if (options.memory_max > 0) return NoGpuToLimit();
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(
      std::make_unique<ThreadPool>(options.threads), &cpu::ActiveTable()));
}

namespace {

constexpr size_t kDevicesMax = 64;

Result<std::vector<std::string>> ParseDevices(std::string_view list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string name(list.substr(begin, end - begin));
    begin = end + 1;
    if (name == kCuda) name += ":0";
    const bool gpu = name.starts_with(kCuda) && CudaOrdinal(name) >= 0;
    if (!gpu && name != "cpu") {
      return InvalidArgument("--devices names cpu and cuda:<number>, separated by commas; '" +
                             name + "' is neither");
    }
    names.push_back(std::move(name));
  }
  if (names.size() > kDevicesMax) {
    return InvalidArgument("--devices names more than " + std::to_string(kDevicesMax) + " devices");
  }
  return names;
}

// Devices that compute every layer together compute alike.
Result<std::unique_ptr<Devices>> Joined(std::vector<Devices::Device> devices,
                                        const DeviceOptions& options) {
  if (options.split == Devices::Split::kRows) {
    for (const Devices::Device& device : devices) {
      if (device.backend->numerics() == devices[0].backend->numerics()) continue;
      return InvalidArgument("--tensor-parallel is for devices of one kind: " + devices[0].name +
                             " and " + device.name + " do not compute alike");
    }
  }
  return std::make_unique<Devices>(std::move(devices), options.split);
}

// Every GPU of the machine that can be used, then the CPU; the GPUs alone, where there are any and
// layers are not what is divided.
Result<std::unique_ptr<Devices>> MakeAllDevices(const DeviceOptions& options) {
  std::vector<Devices::Device> devices;
  for (int ordinal = 0; devices.size() + 1 < kDevicesMax; ++ordinal) {
    auto gpu = MakeCuda(ordinal, options);
    if (!gpu.ok()) {
      const std::string why = ordinal == 0 ? WhyNotTheGpu(gpu.status()) : "";
      if (!why.empty()) Log(LogLevel::kWarning, why);
      break;
    }
    devices.push_back({"cuda:" + std::to_string(ordinal), nullptr, std::move(*gpu)});
  }
  if (devices.empty() || options.split == Devices::Split::kLayers) {
    devices.push_back({"cpu", nullptr,
                       std::make_unique<cpu::CpuBackend>(
                           std::make_unique<ThreadPool>(options.threads), &cpu::ActiveTable())});
  }
  return Joined(std::move(devices), options);
}

}  // namespace

Result<std::unique_ptr<Devices>> MakeDevices(std::string_view list, const DeviceOptions& options) {
  if (list == "auto") return MakeAllDevices(options);
  REPRISE_ASSIGN(const std::vector<std::string> names, ParseDevices(list));
  const bool no_gpu =
      std::all_of(names.begin(), names.end(), [](const auto& name) { return name == "cpu"; });
  if (no_gpu && options.memory_max > 0) return NoGpuToLimit();
  std::vector<Devices::Device> devices;
  ThreadPool* cpu_threads = nullptr;
  for (const std::string& name : names) {
    Devices::Device device;
    device.name = name;
    const auto count = static_cast<size_t>(std::count(names.begin(), names.end(), name));
    DeviceOptions one = options;
    one.device = name;
    one.memory_max = name == "cpu" ? 0 : options.memory_max / count;
    if (name != "cpu" || count == 1) {
      REPRISE_ASSIGN(device.backend, MakeBackend(one));
    } else {
      device.closed = std::make_unique<ClosedMemory>();
      device.backend =
          cpu_threads == nullptr
              ? std::make_unique<cpu::CpuBackend>(std::make_unique<ThreadPool>(options.threads),
                                                  &cpu::ActiveTable(), *device.closed)
              : std::make_unique<cpu::CpuBackend>(cpu_threads, &cpu::ActiveTable(), *device.closed);
      cpu_threads = &device.backend->host_threads();
    }
    devices.push_back(std::move(device));
  }
  return Joined(std::move(devices), options);
}

}  // namespace reprise
