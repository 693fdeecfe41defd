// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/sim/trace.h"
#include "cache/state_cache.h"
#include "cache/stats.h"
#include "state/spec.h"

namespace reprise {

// Replays a trace on the index alone: tree, components and policy as in the server, no model and no
// memory. Requests run one after another, each at its own time.
struct SimulationOptions {
  StateSpec spec;
  CacheOptions cache;       // budget_bytes is what is varied
  bool lru = false;         // plain least-recently-used order instead of the policy
  double half_life_ms = 0;  // 0: the policy's own
};

struct SimulationResult {
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;
  double prompt_cost = 0;  // of computing all prompts, and what reuse saved of it
  double saved_cost = 0;
  size_t bytes_used_max = 0;
  CacheStats stats;

  double hit_ratio() const {
    return prompt_tokens == 0 ? 0 : double(reused_tokens) / double(prompt_tokens);
  }
  double saved_ratio() const { return prompt_cost == 0 ? 0 : saved_cost / prompt_cost; }
};

// Fails with kResourceExhausted if a single request does not fit the budget.
Result<SimulationResult> SimulateTrace(const Trace& trace, const SimulationOptions& options);

// At several fractions of the working set (the bytes of all distinct state that the trace leaves in
// an unbounded cache): the hit ratio of the policy and of plain LRU beside the ideal.
struct BudgetRow {
  double fraction = 0;
  size_t budget_bytes = 0;
  SimulationResult policy;
  SimulationResult lru;
  uint64_t foresight_tokens = 0;  // found by a cache that knows the future (optimum.h)
};
struct BudgetTable {
  SimulationResult ideal;
  uint64_t foresight_tokens = 0;  // with an unbounded cache: whole blocks only
  size_t working_set_bytes = 0;
  std::vector<BudgetRow> rows;
};
Result<BudgetTable> SimulateBudgets(const Trace& trace, const SimulationOptions& options,
                                    std::span<const double> fractions);
std::string FormatTable(const BudgetTable& table);
// Why tokens were not reused, and why entries had to go, in words.
std::string FormatReasons(const SimulationResult& result);

}  // namespace reprise
