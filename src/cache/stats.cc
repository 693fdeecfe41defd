// SPDX-License-Identifier: Apache-2.0
#include "cache/stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace reprise {

std::string_view NameOf(MissReason reason) {
  static constexpr std::string_view kNames[kMissReasonCount] = {"none",
                                                                "new",
                                                                "cold",
                                                                "diverged",
                                                                "no_snapshot_here",
                                                                "evicted",
                                                                "too_large",
                                                                "other_namespace",
                                                                "too_short",
                                                                "disabled",
                                                                "cheaper_to_compute"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view NameOf(SnapshotReason reason) {
  static constexpr std::string_view kNames[kSnapshotReasonCount] = {
      "system", "message", "prompt_end", "breakpoint", "branch", "ladder", "reply_end", "edit"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view NameOf(EvictReason reason) {
  static constexpr std::string_view kNames[kEvictReasonCount] = {
      "running", "snapshot", "metadata", "entry_limit", "expired", "reset"};
  return kNames[static_cast<size_t>(reason)];
}

void CacheStats::Add(const TierStats& tier) {
  const auto free = std::find_if(tiers.begin(), tiers.end(),
                                 [](const TierStats& other) { return !other.present(); });
  CHECK(free != tiers.end());
  *free = tier;
}

void Log2Histogram::Add(uint64_t value) {
  ++counts[std::min<size_t>(std::bit_width(value), kBuckets - 1)];
  ++total;
  sum += value;
}

std::string FormatReport(const ReuseReport& r) {
  std::string line = fmt::format("reuse: {} of {} tokens (kv {}, state {})", r.used_tokens,
                                 r.prompt_tokens, r.kv_tokens, r.state_tokens);
  if (r.reason != MissReason::kNone) line += fmt::format(", {}", NameOf(r.reason));
  if (r.diverged_at >= 0) line += fmt::format(" at {}", r.diverged_at);
  if (r.loaded_tokens > 0) line += fmt::format(", {} loaded", r.loaded_tokens);
  if (r.snapshots_taken > 0) line += fmt::format(", {} snapshots taken", r.snapshots_taken);
  if (r.snapshots_declined > 0) line += fmt::format(", {} declined", r.snapshots_declined);
  if (r.kept_tokens > 0) {
    line += fmt::format(", lossy: snapkv, kept {} of {}", r.kept_tokens, r.prompt_tokens);
  }
  if (r.rounded) line += ", lossy: snapshots bf16";
  return line;
}

}  // namespace reprise
