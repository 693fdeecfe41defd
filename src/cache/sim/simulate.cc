// SPDX-License-Identifier: Apache-2.0
#include "cache/sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "cache/index/state_index.h"
#include "cache/sim/optimum.h"

namespace reprise {
namespace {

// Large, and small enough that sums of it do not overflow.
constexpr size_t kUnbounded = size_t{1} << 50;

// Computes everything up to `end`, in steps as a server takes them: its clock moves on in each,
// and with it what the index does a little of in every step.
Status Compute(StateIndex& index, const Lease& lease, int32_t end, int32_t step_tokens,
               int64_t now_ms) {
  while (index.record(lease).computed.logical < end) {
    const int32_t count = std::min(step_tokens, end - index.record(lease).computed.logical);
    index.SetTime(now_ms);
    REPRISE_TRY(index.Reserve(lease, count));
    REPRISE_TRY(index.Commit(lease, {count}));
    index.actions().clear();
  }
  return OkStatus();
}

}  // namespace

Result<SimulationResult> SimulateTrace(const Trace& trace, const SimulationOptions& options) {
  StateIndex::Options index_options;
  index_options.spec = options.spec;
  index_options.cache = options.cache;
  // The working set is what requests leave, without rungs for edits that no trace has.
  if (options.cache.budget_bytes == kUnbounded) index_options.ladder_share = 0;
  if (options.lru) {
    index_options.policy = std::make_unique<LruPolicy>();
  } else if (options.half_life_ms > 0) {
    index_options.policy = std::make_unique<CostPerBytePolicy>(options.half_life_ms);
  }
  StateIndex index(std::move(index_options));
  const NamespaceKey key{"trace", ""};
  const CostModel cost(options.spec);
  SimulationResult result;
  std::vector<TokenId> prompt;
  for (const TraceRequest& request : trace.requests) {
    index.SetTime(request.time_ms);
    trace.PromptOf(request, &prompt);
    CacheRequest query;
    query.key = &key;
    query.tokens = prompt;
    query.boundaries = request.boundaries;
    Lease lease = index.Acquire(query);
    REPRISE_TRY(index.Start(lease).status);
    const int32_t used = index.record(lease).report.used_tokens;
    result.prompt_tokens += prompt.size();
    result.reused_tokens += size_t(used);
    result.prompt_cost += cost.Recompute(0, static_cast<int32_t>(prompt.size()));
    result.saved_cost += cost.Recompute(0, used);
    constexpr int32_t kPromptStep = 2048, kReplyStep = 1;
    const auto end = static_cast<int32_t>(prompt.size());
    REPRISE_TRY(Compute(index, lease, end, kPromptStep, request.time_ms));
    const auto reply =
        std::span(trace.pool).subspan(request.reply.begin, request.reply.end - request.reply.begin);
    if (!reply.empty()) {
      index.Append(lease, reply);
      // The last token of a reply is sampled, never run.
      const auto last = static_cast<int32_t>(prompt.size() + reply.size() - 1);
      REPRISE_TRY(Compute(index, lease, last, kReplyStep, request.time_ms));
    }
    index.Finish(std::move(lease));
    index.actions().clear();
    result.bytes_used_max = std::max(result.bytes_used_max, index.bytes_used());
  }
  result.stats = index.stats();
  return result;
}

Result<BudgetTable> SimulateBudgets(const Trace& trace, const SimulationOptions& options,
                                    std::span<const double> fractions) {
  SimulationOptions run = options;
  run.cache.budget_bytes = kUnbounded;
  BudgetTable table;
  REPRISE_ASSIGN(table.ideal, SimulateTrace(trace, run));
  table.working_set_bytes = table.ideal.bytes_used_max;
  std::vector<double> shares(fractions.begin(), fractions.end());
  shares.push_back(1);
  const std::vector<uint64_t> foresight = FindOptimum(trace, shares);
  table.foresight_tokens = foresight.back();
  for (const double fraction : fractions) {
    BudgetRow row;
    row.fraction = fraction;
    row.foresight_tokens = foresight[table.rows.size()];
    row.budget_bytes = static_cast<size_t>(fraction * double(table.working_set_bytes));
    run.cache.budget_bytes = row.budget_bytes;
    run.lru = false;
    REPRISE_ASSIGN(row.policy, SimulateTrace(trace, run));
    run.lru = true;
    REPRISE_ASSIGN(row.lru, SimulateTrace(trace, run));
    table.rows.push_back(row);
  }
  return table;
}

std::string FormatTable(const BudgetTable& table) {
  std::string text = fmt::format(
      "ideal: {:.2f} % of {} prompt tokens reused, {:.2f} % of their cost; working set {:.1f} MiB\n"
      "             tokens, of ideal               cost, of ideal\n"
      "  budget     policy      lru  foresight     policy      lru\n",
      100 * table.ideal.hit_ratio(), table.ideal.prompt_tokens, 100 * table.ideal.saved_ratio(),
      double(table.working_set_bytes) / (1 << 20));
  const double tokens = std::max(table.ideal.hit_ratio(), 1e-12) / 100;
  const double cost = std::max(table.ideal.saved_ratio(), 1e-12) / 100;
  const double whole = std::max(double(table.foresight_tokens), 1e-12) / 100;
  for (const BudgetRow& row : table.rows) {
    text +=
        fmt::format("  {:>5.1f} %  {:>6.2f} %  {:>6.2f} %   {:>6.2f} %   {:>6.2f} %  {:>6.2f} %\n",
                    100 * row.fraction, row.policy.hit_ratio() / tokens,
                    row.lru.hit_ratio() / tokens, double(row.foresight_tokens) / whole,
                    row.policy.saved_ratio() / cost, row.lru.saved_ratio() / cost);
  }
  return text;
}

std::string FormatReasons(const SimulationResult& result) {
  const CacheStats& stats = result.stats;
  std::string text = fmt::format("  reused {:.2f} %; computed because", 100 * result.hit_ratio());
  const char* comma = "";
  for (int i = 0; i < kMissReasonCount; ++i) {
    const uint64_t missed = stats.tokens_missed[size_t(i)];
    if (missed == 0) continue;
    fmt::format_to(std::back_inserter(text), "{} {} {:.2f} %", comma,
                   NameOf(static_cast<MissReason>(i)),
                   100 * double(missed) / double(result.prompt_tokens));
    comma = ",";
  }
  text += "\n  evicted:";
  comma = "";
  for (int i = 0; i < kEvictReasonCount; ++i) {
    const auto at = size_t(i);
    if (stats.snapshots_evicted[at] + stats.blocks_evicted[at] == 0) continue;
    fmt::format_to(std::back_inserter(text), "{} {} snapshots and {} blocks ({})", comma,
                   stats.snapshots_evicted[at], stats.blocks_evicted[at],
                   NameOf(static_cast<EvictReason>(i)));
    comma = ",";
  }
  const Log2Histogram& ages = stats.evicted_age_ms;
  if (ages.total > 0) {
    fmt::format_to(std::back_inserter(text), "; unused for {:.0f} s on average",
                   double(ages.sum) / double(ages.total) / 1000);
  }
  return text + "\n";
}

}  // namespace reprise
