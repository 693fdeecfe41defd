// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace reprise {

// A random but reproducible day in the life of the engine: requests that share prefixes, branch,
// edit, repeat, cancel and compete for memory. Plain data, so that it can be printed and made
// smaller.

// How a request's prompt comes about: a part of what an earlier request ended with, then new
// tokens.
struct ScheduledRequest {
  int32_t arrive_step = 0;
  int32_t parent = -1;  // an earlier request, or -1
  int32_t keep = 0;     // tokens of the parent's prompt and reply to begin with (if it has them)
  int32_t fresh = 1;    // new tokens after that, at least one
  uint64_t fresh_seed = 0;   // the same seed and count give the same tokens
  int32_t boundary_gap = 0;  // message boundaries every so many tokens; 0: none
  bool breakpoints = false;  // they are the client's
  int64_t pin_ms = 0;
  int32_t min_cache_tokens = 0;
  int32_t max_tokens = 0;
  int32_t cancel_step = -1;  // -1: never
  int32_t priority = 0;
  bool sampled = false;  // greedy otherwise
  bool idle = false;
  bool cache_read = true;
  bool cache_write = true;
  int32_t tenant = 0;
  bool reset = false;  // everything stored of its tenant is dropped just before it comes
  SnapKv snapkv;       // where the executor and the model can: else it is as if it were off
};

struct Schedule {
  uint64_t seed = 0;
  std::vector<ScheduledRequest> requests;
  // The cache's budget in sequences of context_tokens tokens, at least 1, the least that it
  // accepts: small values force eviction.
  double budget_sequences = 2;
  int32_t context_tokens = 256;
  int32_t sequence_count = 4;
  int32_t rows_max = 64;
  int32_t snapshot_gap = 16;
  int32_t ladder_tokens = 64;
  int64_t ttl_ms = 0;
  int32_t snapkv_redecode = 0;
  bool speculate = false;       // drafts, many of them right, beside every reply
  int32_t draft_window = 0;     // so many, or as engines choose
  uint32_t draft_junk = 0;      // percent of them that are made up
  bool tier = false;            // a lower tier, as bad as a seed makes it (RehearsalTier)
  bool tier_lies = false;       // for tests of the audit: it gives wrong bits
  int32_t restart_before = -1;  // a request before which the engine ends and a new one begins,
  int32_t restart_gap = 0;      // and again so many requests later; 0: only once
};

struct ScheduleLimits {
  int32_t context_tokens = 256;
  int32_t request_count_max = 12;
  int32_t long_context_tokens = 0;  // that of some schedules, with fewer requests; 0: of none
  bool tiers = true;                // some have a lower tier
  bool snapkv = true;               // some have requests that leave out K/V
  bool speculate = false;           // all have drafts
};

Schedule MakeSchedule(uint64_t seed, const ScheduleLimits& limits);

// One line per request, for a bug report.
std::string Describe(const Schedule& schedule);

}  // namespace reprise
