// SPDX-License-Identifier: Apache-2.0
// Proves, on generated traces and so from the clone alone, that the policy is nowhere more than 0.1
// points below plain LRU at an eighth, a quarter and half of the working set, that it finds at
// least 60 % of what foresight finds under the two scans, and that it wins where the public traces
// do.
#include <gtest/gtest.h>

#include <iterator>
#include <string>

#include "base/check.h"
#include "cache/sim/generated_traces.h"
#include "cache/sim/simulate.h"
#include "cache/sim/test_specs.h"
#include "cache/sim/trace.h"

namespace reprise {
namespace {

constexpr double kFractions[] = {0.125, 0.25, 0.5};

BudgetTable Simulate(const std::string& jsonl, const StateSpec& spec) {
  const auto trace = ParseTrace(jsonl, {});
  CHECK(trace.ok());
  SimulationOptions options;
  options.spec = spec;
  auto table = SimulateBudgets(*trace, options, kFractions);
  CHECK(table.ok());
  return *std::move(table);
}

struct Traffic {
  const char* name;
  std::string (*make)(uint64_t seed);
  double won_with_states;  // points above LRU at an eighth
  double won_without_states;
};

class GeneratedTraffic : public testing::TestWithParam<Traffic> {};

// In the mean of three seeds: with so few conversations one run says little.
TEST_P(GeneratedTraffic, IsNowhereBelowLru) {
  constexpr int kSeeds = 3;
  for (const StateSpec& spec : {HybridSpec(), AttentionSpec()}) {
    double won[std::size(kFractions)] = {};  // points of the ideal
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const BudgetTable table = Simulate(GetParam().make(uint64_t(seed)), spec);
      for (size_t i = 0; i < table.rows.size(); ++i) {
        const BudgetRow& row = table.rows[i];
        won[i] +=
            100 * (row.policy.hit_ratio() - row.lru.hit_ratio()) / table.ideal.hit_ratio() / kSeeds;
        EXPECT_LE(row.policy.bytes_used_max, row.budget_bytes);
      }
    }
    for (size_t i = 0; i < std::size(kFractions); ++i) EXPECT_GE(won[i], -0.1) << kFractions[i];
    const Traffic& traffic = GetParam();
    EXPECT_GE(won[0], spec.has_recurrent() ? traffic.won_with_states : traffic.won_without_states);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GeneratedTraffic,
    testing::Values(Traffic{"conversations",
                            [](uint64_t seed) { return PublicConversations(seed, 500); }, 3, 3},
                    Traffic{"tools", [](uint64_t seed) { return ToolLoops(seed, 60); }, 2, 0},
                    Traffic{"questions", [](uint64_t seed) { return TwoQuestions(seed, 150); }, 3,
                            20}),
    [](const auto& one) { return std::string(one.param.name); });

// What foresight finds: the same share of what an unbounded cache finds.
void ExpectMostOfForesight(const std::string& jsonl) {
  for (const StateSpec& spec : {HybridSpec(), AttentionSpec()}) {
    const BudgetTable table = Simulate(jsonl, spec);
    const double ideal = table.ideal.hit_ratio();
    for (const BudgetRow& row : table.rows) {
      const double found = row.policy.hit_ratio() / ideal;
      const double best = double(row.foresight_tokens) / double(table.foresight_tokens);
      EXPECT_GE(found, 0.6 * best) << FormatTable(table);
      EXPECT_GE(found, row.lru.hit_ratio() / ideal - 0.001) << FormatTable(table);
    }
  }
}

TEST(Scans, ConversationsOutliveDocumentsThatAreReadOnce) {
  ExpectMostOfForesight(ConversationsAmongDocuments(60));
}

TEST(Scans, PartOfALoopIsKept) { ExpectMostOfForesight(RoundRobin(100, 12)); }

}  // namespace
}  // namespace reprise
