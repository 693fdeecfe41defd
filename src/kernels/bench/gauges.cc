// SPDX-License-Identifier: Apache-2.0
#include "kernels/bench/gauges.h"

#include "base/clock.h"

#ifdef REPRISE_CUDA
#include "kernels/cuda/gauges.h"
#endif

namespace reprise {
namespace {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(DeviceMemory* memory) : memory_(memory) {}
  void Mark() override {
    memory_->Synchronize();
    marks_.push_back(SteadyClock().NowNs());
  }
  std::vector<double> Take() override {
    std::vector<double> seconds;
    for (size_t i = 1; i < marks_.size(); ++i) {
      seconds.push_back(double(marks_[i] - marks_[i - 1]) * 1e-9);
    }
    marks_.clear();
    return seconds;
  }

 private:
  DeviceMemory* const memory_;
  std::vector<int64_t> marks_;
};

[[maybe_unused]] bool IsCuda(const Backend& backend) { return backend.name().starts_with("cuda"); }

}  // namespace

Ceilings CeilingsOf([[maybe_unused]] Backend& backend, [[maybe_unused]] DType weights) {
#ifdef REPRISE_CUDA
  if (IsCuda(backend)) return cuda::CeilingsOf(backend, weights);
#endif
  return {};
}

std::unique_ptr<Stopwatch> MakeStopwatch(Backend& backend) {
#ifdef REPRISE_CUDA
  if (IsCuda(backend)) return cuda::MakeStopwatch(backend);
#endif
  return std::make_unique<HostStopwatch>(&backend.memory());
}

}  // namespace reprise
