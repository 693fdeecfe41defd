// SPDX-License-Identifier: Apache-2.0
#include "kernels/bench/gauges.h"

#include "base/clock.h"
#include "kernels/split/split_backend.h"

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

// One GPU. Several that are split by rows have a name that begins alike.
[[maybe_unused]] bool IsCuda(const Backend& backend) {
  return backend.name().starts_with("cuda") &&
         dynamic_cast<const SplitBackend*>(&backend) == nullptr;
}

}  // namespace

Ceilings CeilingsOf([[maybe_unused]] Backend& backend, [[maybe_unused]] DType weights) {
  // What several devices can do is held against one of them.
  if (const auto* const split = dynamic_cast<const SplitBackend*>(&backend)) {
    return CeilingsOf(split->part(0), weights);
  }
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
