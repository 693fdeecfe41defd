// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "state/spec.h"

namespace reprise {

// What running requests leave of the budget is shared out among tenants by weight. A tenant may
// have more while others want less, but is never evicted below its share for others.
struct CacheOptions {
  size_t budget_bytes = 0;        // see DefaultBudget
  int32_t context_tokens = 4096;  // of one sequence, which must fit
  int32_t sequence_count = 16;    // sequences with recurrent state that run at the same time
  int64_t entry_count_max = 0;    // 0: no cap
  int64_t ttl_ms = 0;             // entries unused for so long are dropped; 0: never
  int32_t snapshot_grid = 1;      // snapshots only at multiples of it (64 where scans are chunked)
  int32_t snapshot_gap = 64;      // snapshots of one prompt are at least so far apart
  int32_t ladder_tokens = 4096;   // a rung every so many tokens inside long messages; 0: none
  bool enabled = true;            // false: every request computes all, nothing is stored
  // Recurrent states of at least so many bytes are copied by a thread of their own, where models
  // compute in memory of the host: the engine's thread does not wait for them.
  size_t copy_beside_bytes = size_t{2} << 20;
};

// The least that Create accepts: one running sequence of options.context_tokens, a copy of the
// block that it continues in, the state that it leaves behind, and what there is to know about
// them. A request that runs alone is never refused.
size_t LeastBudget(const StateSpec& spec, const CacheOptions& options);

// A budget for a model on a machine: what `memory_bytes` (free memory, weights already taken off)
// allows, enough for many sequences where possible.
// Never more than that: a model of which one sequence does not fit is refused by Create.
size_t DefaultBudget(const StateSpec& spec, size_t memory_bytes, const CacheOptions& options);

}  // namespace reprise
