// SPDX-License-Identifier: Apache-2.0
#include "hub/retries.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

namespace reprise::hub {
namespace {

constexpr uint64_t kAskedSecondsMax = 300;
constexpr int64_t kPauseMaxMs = 60'000;
constexpr std::chrono::milliseconds kSlice{50};

}  // namespace

Status Retries::Wait(const Status& why, std::optional<uint64_t> asked_seconds) {
  if (why.code() != StatusCode::kInternal) return why;
  if (asked_seconds && *asked_seconds > kAskedSecondsMax) {
    return ResourceExhausted(why.message() + " and asks to wait " + std::to_string(*asked_seconds) +
                             " s: try again then");
  }
  if (failures_ == settings_.retries) {
    return Internal(why.message() + " (tried " + std::to_string(failures_ + 1) +
                    " times; the partial download is kept, the same command continues)");
  }
  int64_t pause_ms = std::min(settings_.retry_pause_ms << std::min(failures_, 16), kPauseMaxMs);
  if (asked_seconds) pause_ms = std::max(pause_ms, static_cast<int64_t>(*asked_seconds) * 1000);
  ++failures_;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", double(pause_ms) / 1000);
  if (say_) say_(why.message() + "; trying again in " + seconds + " s");
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(pause_ms);
  while (std::chrono::steady_clock::now() < end) {
    if (settings_.http.cancelled != nullptr && settings_.http.cancelled->load()) {
      return Cancelled("interrupted");
    }
    std::this_thread::sleep_for(std::min(kSlice, std::chrono::milliseconds(pause_ms)));
  }
  return OkStatus();
}

}  // namespace reprise::hub
