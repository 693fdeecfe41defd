// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "device/memory.h"
#include "kernels/op_context.h"

namespace reprise::cli {

// How long each op took: an observer that waits for the device at the end of every one, so what it
// measures is the sum of the parts, on a GPU more than the whole.
class OpProfile final : public OpObserver {
 public:
  explicit OpProfile(DeviceMemory* memory) : memory_(memory) {}

  void Begin(std::string_view op) override;
  void End() override;
  void Clear() { times_.clear(); }

  // A line per op, the longest first; the rest of `total_seconds` was spent between ops.
  void Print(double total_seconds, int64_t tokens) const;

 private:
  struct Time {
    double seconds = 0;
    int64_t calls = 0;
  };

  DeviceMemory* const memory_;
  std::map<std::string, Time, std::less<>> times_;
  Time* current_ = nullptr;
  double start_ = 0;
};

}  // namespace reprise::cli
