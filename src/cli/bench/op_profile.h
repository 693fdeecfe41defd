// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bench/gauges.h"
#include "kernels/op_context.h"

namespace reprise::cli {

// How long each op took on the device, by its own clock. Steps that are watched run op by op: on a
// GPU not as one graph, and with the time of an event beside every op.
class OpProfile final : public OpObserver {
 public:
  explicit OpProfile(Backend& backend) : watch_(MakeStopwatch(backend)) {}

  // Around every step.
  void BeginStep() { watch_->Hold(); }
  void EndStep();

  void Begin(std::string_view op) override;
  void End() override { watch_->Mark(); }
  void Clear() { times_.clear(); }

  // A line per op, the longest first; the rest of `total_seconds` was spent between ops.
  void Print(double total_seconds, int64_t tokens) const;

 private:
  struct Time {
    double seconds = 0;
    int64_t calls = 0;
  };

  const std::unique_ptr<Stopwatch> watch_;
  std::map<std::string, Time, std::less<>> times_;
  std::vector<Time*> ops_;  // of the step, in order
};

}  // namespace reprise::cli
