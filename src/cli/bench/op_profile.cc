// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_profile.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

namespace reprise::cli {

void OpProfile::Begin(std::string_view op) {
  auto found = times_.find(op);
  if (found == times_.end()) found = times_.emplace(std::string(op), Time{}).first;
  ops_.push_back(&found->second);
  watch_->Mark();
}

void OpProfile::EndStep() {
  const std::vector<double> seconds = watch_->Take();  // of an op, between two ops, of an op...
  for (size_t i = 0; i < ops_.size(); ++i) {
    ops_[i]->seconds += seconds[2 * i];
    ++ops_[i]->calls;
  }
  ops_.clear();
}

void OpProfile::Print(double total_seconds, int64_t tokens) const {
  std::vector<std::pair<std::string, Time>> sorted(times_.begin(), times_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double between = total_seconds;
  if (watch_->holds()) {  // the device has waited for its caller: its own time counts
    between = total_seconds = 0;
    for (const auto& [op, time] : sorted) total_seconds += time.seconds;
  }
  std::printf("  %-18s %10s %12s %8s\n", "op", "calls", "us/token", "share");
  const auto line = [&](const char* op, int64_t calls, double seconds) {
    std::printf("  %-18s %10lld %12.2f %7.1f%%\n", op, static_cast<long long>(calls),
                seconds * 1e6 / double(tokens), 100 * seconds / total_seconds);
  };
  for (const auto& [op, time] : sorted) {
    line(op.c_str(), time.calls, time.seconds);
    between -= time.seconds;
  }
  if (between > 0) line("(between ops)", 0, between);
}

}  // namespace reprise::cli
