// SPDX-License-Identifier: Apache-2.0
// Proves that the trace readers understand each format and refuse the rest in one sentence, that
// the simulation counts right, and, where the public traces are at hand, that the policy is nowhere
// more than 0.1 points below plain LRU and reaches nine tenths of the ideal at a quarter of the
// working set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cache/sim/optimum.h"
#include "cache/sim/simulate.h"
#include "cache/sim/test_specs.h"
#include "cache/sim/trace.h"

namespace reprise {
namespace {

TEST(Trace, Mooncake) {
  const auto trace = ParseTrace(
      R"({"timestamp": 5, "input_length": 1100, "output_length": 3, "hash_ids": [1, 2, 3]})"
      "\n"
      R"({"timestamp": 0, "input_length": 1024, "output_length": 3, "hash_ids": [1, 2]})",
      {});
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].time_ms, 0) << "by time";
  EXPECT_EQ(trace->requests[0].prompt_tokens, 1025) << "and one token to run";
  std::vector<TokenId> a, b;
  trace->PromptOf(trace->requests[0], &a);
  trace->PromptOf(trace->requests[1], &b);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_NE(a[1024], b[1024]);
}

TEST(Trace, Conversations) {
  const auto trace = ParseTrace(
      R"({"messages": [{"role": "system", "content": "Be kind."},)"
      R"( {"role": "user", "content": "Hi"},)"
      R"( {"role": "assistant", "content": "Hello there."}, {"role": "user", "content": "Bye"},)"
      R"( {"role": "assistant", "content": null, "tool_calls": [{"name": "wave"}]}]})"
      "\n"
      R"({"turns": ["One question.", "Another."]})",
      {});
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->requests.size(), 4u);
  const TraceRequest& first = trace->requests[0];
  EXPECT_EQ(first.boundaries[0].kind, BoundaryKind::kSystem);
  EXPECT_EQ(first.boundaries.size(), 2u);
  EXPECT_EQ(first.boundaries.back().position, first.prompt_tokens - 1) << "one opens the reply";
}

TEST(Trace, RefusesWhatItDoesNotKnow) {
  for (const char* bad : {"", "{}", "[1]", "{\"hash_ids\": [1]}", "{\"messages\": [1]}", "nonsense",
                          R"({"timestamp": 5, "input_length": 99999, "hash_ids": [1]})",
                          R"({"timestamp": 5, "input_length": -1, "hash_ids": [1]})",
                          R"({"timestamp": 5, "input_length": 512, "hash_ids": ["x"]})"}) {
    EXPECT_FALSE(ParseTrace(bad, {}).ok()) << bad;
  }
}

std::string Chats(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string long_text;
    for (int j = 0; j < 300; ++j) long_text += " word" + std::to_string(i * 1000 + j);
    text += R"({"messages": [{"role": "system", "content": ")" + std::string(2000, 'x') + R"("},)";
    for (int turn = 0; turn < 3; ++turn) {
      text += std::string(turn ? "," : "") + R"({"role": "user", "content": ")" + long_text +
              std::to_string(turn) + R"("}, {"role": "assistant", "content": "yes)" + long_text +
              R"("})";
    }
    text += "]}\n";
  }
  return text;
}

TEST(Simulate, CountsWhatIsReused) {
  const auto trace = ParseTrace(Chats(20), {});
  ASSERT_TRUE(trace.ok());
  for (const StateSpec& spec : {HybridSpec(), AttentionSpec()}) {
    SimulationOptions options;
    options.spec = spec;
    const double fractions[] = {0.25, 1.0};
    const auto table = SimulateBudgets(*trace, options, fractions);
    ASSERT_TRUE(table.ok()) << table.status().message();
    EXPECT_EQ(table->ideal.prompt_tokens, trace->PromptTokens());
    EXPECT_GT(table->ideal.hit_ratio(), 0.5);
    EXPECT_GE(table->rows[1].policy.hit_ratio(), 0.99 * table->ideal.hit_ratio());
    EXPECT_LE(table->rows[0].policy.bytes_used_max, table->rows[0].budget_bytes);
    EXPECT_LT(double(table->ideal.stats.bytes_metadata), 0.01 * double(table->working_set_bytes));
    EXPECT_NE(FormatTable(*table).find("25.0 %"), std::string::npos);
  }
}

// Three documents A, B, C of two blocks in the order A B C A B A; room for four blocks.
TEST(Optimum, KeepsWhatIsUsedSoonest) {
  std::string text;
  int time = 0;
  for (const int document : {1, 2, 3, 1, 2, 1}) {
    text += R"({"timestamp": )" + std::to_string(time++) +
            R"(, "input_length": 512, "hash_ids": [)" + std::to_string(document) + "]}\n";
  }
  const auto trace = ParseTrace(text, {});
  ASSERT_TRUE(trace.ok());
  const double fractions[] = {1, 2. / 3, 1. / 3, 1. / 6};
  const auto tokens = FindOptimum(*trace, fractions);
  EXPECT_EQ(tokens[0], 3 * 512u);
  EXPECT_EQ(tokens[1], 3 * 512u) << "C is never used again and not kept";
  EXPECT_EQ(tokens[2], 2 * 512u) << "A is used sooner than B, both times";
  EXPECT_EQ(tokens[3], 2 * 256u) << "half of A: a prefix of it";
}

class PublishedTraces : public testing::Test {
 protected:
  void Check(const std::string& name, const StateSpec& spec) {
    const char* shared = std::getenv("REPRISE_SHARED");
    const std::string path = std::string(shared ? shared : "../shared") + "/assets/traces/" + name;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
    const auto trace = ReadTrace(path, {});
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    SimulationOptions options;
    options.spec = spec;
    const double fractions[] = {0.125, 0.25, 0.5};
    const auto table = SimulateBudgets(*trace, options, fractions);
    ASSERT_TRUE(table.ok()) << table.status().message();
    const double ideal = table->ideal.hit_ratio();
    for (const BudgetRow& row : table->rows) {
      EXPECT_GE(row.policy.hit_ratio() / ideal, row.lru.hit_ratio() / ideal - 0.001)
          << FormatTable(*table);
    }
    const BudgetRow& row = table->rows[1];
    RecordProperty("table", FormatTable(*table) + FormatReasons(row.policy));
    EXPECT_LE(row.policy.hit_ratio() / ideal, 1.0);
    EXPECT_GE(row.policy.hit_ratio(), 0.9 * ideal) << FormatTable(*table);
    uint64_t explained = 0;
    for (const uint64_t tokens : row.policy.stats.tokens_missed) explained += tokens;
    EXPECT_EQ(explained + row.policy.reused_tokens, row.policy.prompt_tokens);
  }
};

// Short traces, each begun with an empty cache, in which little can be learnt; and what is neither
// conversation nor tools. The policy is nowhere more than 0.1 points below the least recently used
// order. (scan_test.cc asks the same of generated traces.)
class PublishedShortTraces : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(PublishedShortTraces, AreNowhereBelowLru) {
  constexpr int kWindow = 3000;
  const auto [name, window] = GetParam();  // -1: all
  const char* shared = std::getenv("REPRISE_SHARED");
  const std::string path = std::string(shared ? shared : "../shared") + "/assets/traces/" + name;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  std::ifstream file(path);
  std::string text, line;
  for (int i = 0; std::getline(file, line); ++i) {
    if (window < 0 || i / kWindow == window) text += line + "\n";
  }
  const auto trace = ParseTrace(text, {});
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  for (const StateSpec& spec : {HybridSpec(), AttentionSpec()}) {
    SimulationOptions options;
    options.spec = spec;
    const double fractions[] = {0.125, 0.25, 0.5};
    const auto table = SimulateBudgets(*trace, options, fractions);
    ASSERT_TRUE(table.ok()) << table.status().message();
    const double ideal = table->ideal.hit_ratio();
    for (const BudgetRow& row : table->rows) {
      EXPECT_GE(row.policy.hit_ratio() / ideal, row.lru.hit_ratio() / ideal - 0.001)
          << FormatTable(*table);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Public, PublishedShortTraces,
                         testing::Values(std::pair("mooncake/conversation_trace.jsonl", 0),
                                         std::pair("mooncake/conversation_trace.jsonl", 1),
                                         std::pair("mooncake/conversation_trace.jsonl", 2),
                                         std::pair("mooncake/conversation_trace.jsonl", 3),
                                         std::pair("mooncake/synthetic_trace.jsonl", -1),
                                         std::pair("mt_bench_question.jsonl", -1)));

TEST_F(PublishedTraces, Conversation) { Check("mooncake/conversation_trace.jsonl", HybridSpec()); }
TEST_F(PublishedTraces, Tools) { Check("tau-bench/gpt4o_airline.jsonl", HybridSpec()); }
TEST_F(PublishedTraces, ToolTurns) { Check("bfcl/BFCL_v4_multi_turn_base.json", HybridSpec()); }
TEST_F(PublishedTraces, ConversationWithAttentionOnly) {
  Check("mooncake/conversation_trace.jsonl", AttentionSpec());
}
TEST_F(PublishedTraces, ToolsWithAttentionOnly) {
  Check("tau-bench/gpt4o_airline.jsonl", AttentionSpec());
}
TEST_F(PublishedTraces, ToolTurnsWithAttentionOnly) {
  for (const char* kind : {"base", "long_context", "miss_func", "miss_param"}) {
    Check("bfcl/BFCL_v4_multi_turn_" + std::string(kind) + ".json", AttentionSpec());
  }
}

}  // namespace
}  // namespace reprise
