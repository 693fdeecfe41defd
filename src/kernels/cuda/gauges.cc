// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gauges.h"

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>

#include "base/check.h"
#include "device/cuda/cuda_memory.h"
#include "kernels/cuda/architecture.h"
#include "kernels/cuda/cuda_matrix.h"

namespace reprise::cuda {
namespace {

// Times by events between what is asked for. The stream is held while it is asked, so that a kernel
// does not wait for its launch.
class EventStopwatch final : public Stopwatch {
 public:
  explicit EventStopwatch(cudaStream_t stream) : stream_(stream) {}
  ~EventStopwatch() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void Hold() override {
    released_ = false;
    CHECK(cudaLaunchHostFunc(stream_, WaitForRelease, this) == cudaSuccess);
  }
  bool holds() const override { return true; }
  void Mark() override {
    if (count_ == events_.size()) CHECK(cudaEventCreate(&events_.emplace_back()) == cudaSuccess);
    CHECK(cudaEventRecord(events_[count_++], stream_) == cudaSuccess);
  }
  std::vector<double> Take() override {
    released_ = true;
    CHECK(cudaStreamSynchronize(stream_) == cudaSuccess);
    std::vector<double> seconds;
    for (size_t i = 1; i < count_; ++i) {
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, events_[i - 1], events_[i]) == cudaSuccess);
      seconds.push_back(double(ms) * 1e-3);
    }
    count_ = 0;
    return seconds;
  }

 private:
  // Not for ever: whoever asks may have to wait for room in the stream.
  static void WaitForRelease(void* self) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(4);
    while (!static_cast<EventStopwatch*>(self)->released_ &&
           std::chrono::steady_clock::now() < end) {
    }
  }

  const cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  size_t count_ = 0;
  std::atomic<bool> released_{false};
};

const CudaMemory& MemoryOf(Backend& backend) { return static_cast<CudaMemory&>(backend.memory()); }

// Multiplications and additions that a multiprocessor does in a clock, by compute capability: as
// many as the best of its kind does.
struct Rates {
  double f32, f16, int8;  // FP32 units, tensor cores
};
Rates RatesOf(const CudaMemory::Device& device) {
  if (device.major == 8 && device.minor == 0) return {128, 2048, 4096};
  if (device.major == 9) return {256, 4096, 8192};
  if (device.major == 10) return {256, 8192, 16384};
  return {256, 1024, 2048};
}
double OperationsPerClock(const CudaMemory::Device& device, DType weights) {
  const Rates rates = RatesOf(device);
  const bool packed = PackedFormOf(weights) != PackedForm::kNone;
  switch (packed ? ActivationForm::kF16 : FormOf(weights)) {
    case ActivationForm::kF32:
      return rates.f32;
    case ActivationForm::kF16:
      return rates.f16;
    case ActivationForm::kBlock32:
    case ActivationForm::kBlock256:
      return rates.int8;
  }
  return 0;
}

}  // namespace

// At the highest clocks, which a GPU under load does not keep: nothing is faster.
Ceilings CeilingsOf(Backend& backend, DType weights) {
  MemoryOf(backend).Use();
  const CudaMemory::Device& device = MemoryOf(backend).device();
  int clock_khz = 0, memory_khz = 0, bus_bits = 0;
  cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device.ordinal);
  cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device.ordinal);
  cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device.ordinal);
  return {2.0 * 1e3 * memory_khz * bus_bits / 8,
          OperationsPerClock(device, weights) * device.multiprocessors * 1e3 * clock_khz};
}

std::unique_ptr<Stopwatch> MakeStopwatch(Backend& backend) {
  return std::make_unique<EventStopwatch>(MemoryOf(backend).stream());
}

}  // namespace reprise::cuda
