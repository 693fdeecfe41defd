// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/schedule.h"

#include <algorithm>

#include "base/rng.h"

namespace reprise {
namespace {

bool Chance(Rng* rng, uint64_t percent) { return rng->Below(100) < percent; }

int32_t Between(Rng* rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng->Below(static_cast<uint64_t>(high - low + 1)));
}

// Which requests leave out K/V. From numbers of their own, so that schedules stay what they were.
void AddSnapKv(uint64_t seed, Schedule* schedule) {
  Rng rng(seed + (uint64_t{1} << 40));
  if (!Chance(&rng, 40)) return;
  if (Chance(&rng, 40)) schedule->snapkv_redecode = Between(&rng, 1, 24);
  for (ScheduledRequest& request : schedule->requests) {
    if (!Chance(&rng, 50)) continue;
    request.snapkv.window = Between(&rng, 1, 24);
    if (Chance(&rng, 70)) {
      request.snapkv.budget = Between(&rng, 1, schedule->context_tokens / 2);
    } else {
      request.snapkv.share = 0.01 * Between(&rng, 1, 99);
    }
  }
}

// How drafts are made. From numbers of their own, too.
void AddDrafts(uint64_t seed, Schedule* schedule) {
  Rng rng(seed + (uint64_t{1} << 41));
  schedule->speculate = true;
  schedule->draft_window = Chance(&rng, 20) ? 0 : Between(&rng, 1, 16);
  schedule->draft_junk = Chance(&rng, 30) ? 0 : static_cast<uint32_t>(rng.Below(101));
}

}  // namespace

Schedule MakeSchedule(uint64_t seed, const ScheduleLimits& limits) {
  Rng rng(seed);
  Schedule schedule;
  schedule.seed = seed;
  const bool is_long = limits.long_context_tokens > 0 && Chance(&rng, 3);
  const int32_t context = is_long ? limits.long_context_tokens : limits.context_tokens;
  schedule.context_tokens = context;
  schedule.budget_sequences = 1.0 + static_cast<double>(rng.Below(50)) / 10;
  schedule.sequence_count = Between(&rng, 1, 6);
  schedule.rows_max = Between(&rng, 1, 3) == 1 ? Between(&rng, 1, 16) : Between(&rng, 16, 128);
  schedule.snapshot_gap = Between(&rng, 1, 64);
  schedule.ladder_tokens = Chance(&rng, 30) ? 0 : Between(&rng, 16, 200);

  if (Chance(&rng, 15)) schedule.ttl_ms = Between(&rng, 2, 60);
  schedule.tier = Chance(&rng, 40) && limits.tiers;
  const int32_t count =
      Between(&rng, 2, is_long ? std::min(5, limits.request_count_max) : limits.request_count_max);
  if (Chance(&rng, 30)) schedule.restart_before = Between(&rng, 1, count);
  const int32_t system_count =
      Between(&rng, 1, 3);  // few different beginnings: prefixes are shared
  int32_t step = 0;
  for (int32_t i = 0; i < count; ++i) {
    ScheduledRequest request;
    step += Chance(&rng, 40) ? 0 : Between(&rng, 1, 30);
    request.arrive_step = step;
    if (i > 0 && Chance(&rng, 75)) {
      request.parent = Between(&rng, 0, i - 1);
      // Everything (the next turn, or the same prompt again), or a part (a branch, an edit).
      request.keep = Chance(&rng, 50) ? context : Between(&rng, 0, context / 2);
      request.fresh = Between(&rng, 1, context / 8);
      request.fresh_seed = rng.Below(6);
    } else {
      request.fresh = Between(&rng, 1, context / 2);
      request.fresh_seed = 100 + rng.Below(static_cast<uint64_t>(system_count));
    }
    request.boundary_gap = Chance(&rng, 60) ? Between(&rng, 5, 60) : 0;
    request.max_tokens = Chance(&rng, 15) ? 0 : Between(&rng, 1, context / 8);
    if (Chance(&rng, 20)) request.cancel_step = step + Between(&rng, 0, 20);
    request.priority = Chance(&rng, 20) ? Between(&rng, -1, 2) : 0;
    request.sampled = Chance(&rng, 50);
    request.idle = Chance(&rng, 10);
    request.cache_read = !Chance(&rng, 5);
    request.cache_write = !Chance(&rng, 5);
    request.tenant = Chance(&rng, 15) ? Between(&rng, 1, 2) : 0;
    request.breakpoints = Chance(&rng, 20);
    if (Chance(&rng, 15)) request.pin_ms = Between(&rng, 1, 200);
    if (Chance(&rng, 5)) request.min_cache_tokens = Between(&rng, 1, 100);
    request.reset = Chance(&rng, 5);
    schedule.requests.push_back(request);
  }
  if (limits.snapkv) AddSnapKv(seed, &schedule);
  if (limits.speculate) AddDrafts(seed, &schedule);
  return schedule;
}

std::string Describe(const Schedule& schedule) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string text = "seed " + std::to_string(schedule.seed) + ", context " +
                     number(schedule.context_tokens) + ", budget " +
                     std::to_string(schedule.budget_sequences) + " sequences, " +
                     number(schedule.sequence_count) + " at a time, " + number(schedule.rows_max) +
                     " rows a step, snapshot gap " + number(schedule.snapshot_gap) + ", ladder " +
                     number(schedule.ladder_tokens) + ", ttl " + number(schedule.ttl_ms) +
                     (schedule.tier ? " ms, with a lower tier" : " ms");
  if (schedule.restart_before >= 0) {
    text += ", restarted before request " + number(schedule.restart_before);
    if (schedule.restart_gap > 0) text += ", then every " + number(schedule.restart_gap);
  }
  if (schedule.snapkv_redecode > 0) {
    text += ", K/V left out again every " + number(schedule.snapkv_redecode);
  }
  if (schedule.speculate) {
    text += ", windows of " + number(schedule.draft_window) + " drafts, " +
            number(schedule.draft_junk) + " % made up";
  }
  text += "\n";
  for (size_t i = 0; i < schedule.requests.size(); ++i) {
    const ScheduledRequest& r = schedule.requests[i];
    text += "  " + number(static_cast<int64_t>(i)) + ": at step " + number(r.arrive_step);
    if (r.parent >= 0) text += ", " + number(r.keep) + " tokens of request " + number(r.parent);
    text += ", " + number(r.fresh) + " new (" + std::to_string(r.fresh_seed) + "), generate " +
            number(r.max_tokens) + (r.sampled ? " sampled" : " greedy");
    if (r.boundary_gap > 0) text += ", boundary every " + number(r.boundary_gap);
    if (r.cancel_step >= 0) text += ", cancelled at step " + number(r.cancel_step);
    if (r.priority != 0) text += ", priority " + number(r.priority);
    if (r.idle) text += ", idle";
    if (!r.cache_read) text += ", no read";
    if (!r.cache_write) text += ", no write";
    if (r.tenant != 0) text += ", tenant " + number(r.tenant);
    if (r.breakpoints) text += ", breakpoints";
    if (r.pin_ms > 0) text += ", pinned for " + number(r.pin_ms) + " ms";
    if (r.min_cache_tokens > 0) text += ", at least " + number(r.min_cache_tokens) + " tokens";
    if (r.reset) text += ", after a reset";
    if (!r.snapkv.off()) {
      text += ", snapkv " +
              (r.snapkv.budget > 0 ? number(r.snapkv.budget) : std::to_string(r.snapkv.share));
      text += " window " + number(r.snapkv.window);
    }
    text += "\n";
  }
  return text;
}

}  // namespace reprise
