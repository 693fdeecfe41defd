// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/op_profile.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace reprise::cli {
namespace {

double Seconds() { return double(SteadyClock().NowNs()) * 1e-9; }

}  // namespace

void OpProfile::Begin(std::string_view op) {
  auto found = times_.find(op);
  if (found == times_.end()) found = times_.emplace(std::string(op), Time{}).first;
  current_ = &found->second;
  start_ = Seconds();
}

void OpProfile::End() {
  memory_->Synchronize();
  current_->seconds += Seconds() - start_;
  ++current_->calls;
}

void OpProfile::Print(double total_seconds, int64_t tokens) const {
  std::vector<std::pair<std::string, Time>> sorted(times_.begin(), times_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double between = total_seconds;
  std::printf("  %-18s %10s %12s %8s\n", "op", "calls", "us/token", "share");
  const auto line = [&](const char* op, int64_t calls, double seconds) {
    std::printf("  %-18s %10lld %12.2f %7.1f%%\n", op, static_cast<long long>(calls),
                seconds * 1e6 / double(tokens), 100 * seconds / total_seconds);
  };
  for (const auto& [op, time] : sorted) {
    line(op.c_str(), time.calls, time.seconds);
    between -= time.seconds;
  }
  line("(between ops)", 0, std::max(between, 0.0));
}

}  // namespace reprise::cli
