// SPDX-License-Identifier: Apache-2.0
#include "api/quota.h"

#include <algorithm>
#include <cmath>

namespace reprise::api {
namespace {

constexpr double kMinute = 60'000;
constexpr double kDay = 86'400'000;

}  // namespace

Quota::Quota(const Limits& limits)
    : buckets_{{"requests per minute", double(limits.requests_per_minute), kMinute, 0, false},
               {"tokens per minute", double(limits.tokens_per_minute), kMinute, 0, true},
               {"tokens per day", double(limits.tokens_per_day), kDay, 0, true}} {
  for (Bucket& bucket : buckets_) bucket.level = bucket.limit;
}

void Quota::Fill(int64_t now_ms) {
  const double passed = filled_at_ms_ < 0 ? 0 : static_cast<double>(now_ms - filled_at_ms_);
  filled_at_ms_ = now_ms;
  for (Bucket& bucket : buckets_) {
    const double more = bucket.limit * std::max(0.0, passed) / bucket.period_ms;
    bucket.level = std::min(bucket.limit, bucket.level + more);
  }
}

std::optional<Quota::Refusal> Quota::Begin(int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  Fill(now_ms);
  std::optional<Refusal> refusal;
  for (const Bucket& bucket : buckets_) {
    if (bucket.limit == 0 || bucket.level >= 1) continue;
    const double wait_ms = (1 - bucket.level) * bucket.period_ms / bucket.limit;
    const int64_t seconds = std::max<int64_t>(1, std::llround(std::ceil(wait_ms / 1000)));
    if (refusal && refusal->seconds >= seconds) continue;
    refusal = {std::to_string(std::llround(bucket.limit)) + " " + bucket.unit, seconds};
  }
  if (!refusal) buckets_[0].level -= 1;
  return refusal;
}

void Quota::Spend(int64_t tokens, int64_t now_ms) {
  const std::lock_guard lock(mutex_);
  Fill(now_ms);
  for (Bucket& bucket : buckets_) {
    if (bucket.counts_tokens && bucket.limit > 0) bucket.level -= static_cast<double>(tokens);
  }
}

}  // namespace reprise::api
