// SPDX-License-Identifier: Apache-2.0
// SnapKV in the engine: a reply that was promised less K/V is the same in every schedule, running
// memory shrinks at once, and nothing of it is ever found by others.
#include <gtest/gtest.h>

#include <future>
#include <numeric>

#include "device/thread_pool.h"
#include "engine/audit/cold_snapkv.h"
#include "engine/compaction.h"
#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

constexpr SnapKv kSnap{.budget = 128, .window = 16};

class SnapKvTest : public testing::TestWithParam<FakeExecutor::Kind> {
 protected:
  Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

  GenerateRequest Lossy(uint64_t seed, int32_t prompt, int32_t reply, SnapKv snapkv = kSnap) {
    GenerateRequest request = Talk().Say(seed, prompt).Request(reply);
    request.snapkv = snapkv;
    return request;
  }

  // What the reply must be, from nothing: greedy.
  std::vector<TokenId> Expected(const GenerateRequest& request, int32_t redecode = 0) {
    SnapKv options = request.snapkv.value_or(SnapKv());
    options.redecode = redecode;
    std::vector<TokenId> tokens = request.prompt;
    const auto prompt = static_cast<int32_t>(tokens.size());
    std::vector<float> logits;
    for (int32_t i = 0; i < request.max_tokens; ++i) {
      logits.resize(tokens.size() * FakeExecutor::kVocab);
      RunColdSnapKv(executor_, 0, tokens, prompt, options, logits.data());
      const auto last = std::span(logits).last(FakeExecutor::kVocab);
      tokens.push_back(TokenId(std::max_element(last.begin(), last.end()) - last.begin()));
    }
    return {tokens.begin() + prompt, tokens.end()};
  }

  FakeExecutor executor_{GetParam()};
  CacheOptions cache_options_;
  EngineOptions engine_options_;
};

// Where an executor has threads, rows are chosen beside the steps of others: the sequence waits,
// and its reply is the same.
TEST_P(SnapKvTest, RowsAreChosenBesideTheStepsOfOthers) {
  ThreadPool pool(1);
  executor_.set_pool(&pool);
  EngineFixture fixture(executor_);
  const GenerateRequest lossy = Lossy(1, 700, 20), other = Talk().Say(2, 300).Request(60);
  const auto first = fixture.Submit(lossy), second = fixture.Submit(other);
  const auto cancelled = fixture.Submit(Lossy(3, 700, 20));
  fixture.engine().Step();
  cancelled->Cancel();
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*first).tokens, Expected(lossy));
  EXPECT_EQ(EngineFixture::Read(*second).tokens.size(), 60u);
  EXPECT_EQ(fixture.cache().CheckInvariants().message(), "");
  executor_.set_pool(nullptr);
}

TEST_P(SnapKvTest, TheEnginesThreadDoesNotChooseRows) {
  ThreadPool pool(1);
  executor_.set_pool(&pool);
  auto compaction = Compaction::Make(executor_.card().state, kSnap, 700);
  ASSERT_TRUE(compaction);
  ASSERT_TRUE(compaction->Watch(executor_, {684, 684}, 16).ok());
  std::promise<void> go;
  Background background;
  background.Post([&] { go.get_future().wait(); });  // it is busy with something else
  compaction->Choose(executor_, &background);
  EXPECT_TRUE(compaction->begun());
  EXPECT_FALSE(compaction->chosen());
  go.set_value();
  background.WaitUntil([&] { return compaction->chosen(); });
  EXPECT_EQ(compaction->Lists().size(), 128u);
  executor_.set_pool(nullptr);
}

TEST_P(SnapKvTest, RepliesAreThoseOfTheKeptRows) {
  EngineFixture fixture(executor_);
  const GenerateRequest lossy = Lossy(1, 700, 20);
  const auto answer = fixture.Ask(lossy);
  EXPECT_EQ(answer.tokens, Expected(lossy));
  EXPECT_EQ(answer.completion.report.kept_tokens, 128);
  EXPECT_NE(FormatReport(answer.completion.report).find("lossy: snapkv, kept 128 of 700"),
            std::string::npos);
  // The window, and of what is before it as much as is left of the budget.
  const std::vector<uint8_t>& along = answer.completion.report.kept_along;
  ASSERT_EQ(along.size(), 64u);
  EXPECT_EQ(along.back(), 100);
  EXPECT_NEAR(std::accumulate(along.begin(), along.end(), 0.0) / 64, 100.0 * 128 / 700, 2);
  GenerateRequest exact = lossy;
  exact.snapkv.reset();
  const auto whole = fixture.Ask(exact);
  EXPECT_EQ(whole.completion.report.kept_tokens, 0);
  EXPECT_TRUE(whole.completion.report.kept_along.empty());
  EXPECT_NE(whole.tokens, answer.tokens) << "nothing was left out";
}

TEST_P(SnapKvTest, ShortPromptsAreUntouched) {
  EngineFixture fixture(executor_);
  GenerateRequest request = Lossy(1, 128, 10);
  const auto answer = fixture.Ask(request);
  EXPECT_EQ(answer.completion.report.kept_tokens, 0);
  EXPECT_EQ(fixture.cache().stats().compactions, 0u);
  request.snapkv.reset();
  const auto exact = fixture.Ask(request);
  EXPECT_EQ(exact.tokens, answer.tokens);
  EXPECT_EQ(exact.completion.report.used_tokens,
            GetParam() == FakeExecutor::Kind::kHybrid ? exact.completion.report.state_tokens : 127);
}

TEST_P(SnapKvTest, RunningMemoryShrinksAtOnce) {
  EngineFixture fixture(executor_);
  const auto stream = fixture.Submit(Lossy(1, 1000, 50));
  uint64_t most = 0;
  while (fixture.cache().stats().compactions == 0) {
    ASSERT_TRUE(fixture.engine().Step());
    most = std::max(most, fixture.cache().stats().blocks_leased);
    ASSERT_TRUE(fixture.cache().CheckInvariants().ok());
  }
  EXPECT_LE(fixture.cache().stats().blocks_leased, 2u);
  ASSERT_TRUE(fixture.engine().Step());
  EXPECT_LE(fixture.cache().stats().blocks_leased, 3u);
  EXPECT_EQ(fixture.cache().stats().tokens_left_out, 1000u - 128u);
  EXPECT_GE(fixture.cache().stats().bytes_left_out, 14 * executor_.card().state.kv_block_bytes());
  fixture.RunAll();
  EXPECT_EQ(fixture.Read(*stream).tokens.size(), 50u);
  EXPECT_EQ(fixture.cache().stats().blocks_leased, 0u);
}

// The figures of docs/snapkv.md: blocks are the same for every model.
TEST_P(SnapKvTest, AnEighthOfALongPromptIsAnEighthOfItsBlocks) {
  FakeExecutor executor(GetParam(), 20000);
  cache_options_.context_tokens = 20000;
  cache_options_.budget_bytes = size_t{256} << 20;
  EngineFixture fixture(executor, cache_options_);
  // Blocks that a request holds in the middle of its reply.
  const auto blocks = [&](const SnapKv& snapkv) {
    const auto stream = fixture.Submit(Lossy(1, 16384, 60, snapkv));
    while (fixture.engine().stats().tokens_generated % 60 < 30)
      EXPECT_TRUE(fixture.engine().Step());
    const uint64_t leased = fixture.cache().stats().blocks_leased;
    fixture.RunAll();
    return leased;
  };
  EXPECT_EQ(blocks({.budget = 2048}), 2048u / 64 + 1);
  EXPECT_EQ(blocks({}), 16384u / 64 + 1);
}

TEST_P(SnapKvTest, TheExactPromptStaysAndTheWindowIsRunAgain) {
  EngineFixture fixture(executor_);
  const auto first = fixture.Ask(Lossy(1, 1000, 10));
  const auto again = fixture.Ask(Lossy(1, 1000, 10));
  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_LE(again.completion.report.used_tokens, 1000 - kSnap.window);
  if (GetParam() == FakeExecutor::Kind::kAttention) {
    EXPECT_EQ(again.completion.report.used_tokens, 1000 - kSnap.window);
    EXPECT_EQ(again.completion.report.reason, MissReason::kNone);
  }
  GenerateRequest exact = Lossy(1, 1000, 1);
  exact.snapkv.reset();
  EXPECT_GE(fixture.Ask(exact).completion.report.used_tokens, 1000 - 1);
}

// Another turn finds the exact prompt, and nothing of the reply that was decoded behind less.
TEST_P(SnapKvTest, NothingLossyIsFound) {
  EngineFixture fixture(executor_);
  const auto reply = fixture.Ask(Lossy(1, 1000, 100));
  GenerateRequest next = Talk().Say(1, 1000).Append(reply.tokens).Say(7, 30).Request(10);
  const auto warm = fixture.Ask(next);
  EXPECT_LE(warm.completion.report.used_tokens, 1000);
  EXPECT_GE(warm.completion.report.used_tokens, 999);
  EXPECT_LE(warm.completion.report.known_tokens, 1001);
  EngineFixture other(executor_);
  EXPECT_EQ(other.Ask(next).tokens, warm.tokens);
}

TEST_P(SnapKvTest, SentBackAndResumedItIsTheSame) {
  cache_options_.context_tokens = 1200;
  cache_options_.budget_bytes = LeastBudget(executor_.card().state, cache_options_);
  engine_options_.running_max = 1;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  const GenerateRequest lossy = Lossy(1, 900, 60);
  const auto stream = fixture.Submit(lossy);
  for (int step = 0; step < 30; ++step) fixture.engine().Step();
  EXPECT_EQ(fixture.cache().stats().compactions, 1u);
  GenerateRequest urgent = Talk().Say(2, 1100).Request(20);
  urgent.priority = 1;
  const auto other = fixture.Submit(urgent);
  while (fixture.engine().Step()) {
    ASSERT_TRUE(fixture.cache().CheckInvariants().ok());
    fixture.clock().AdvanceMs(1);
  }
  const auto answer = fixture.Read(*stream);
  EXPECT_GE(answer.completion.preemptions, 1);
  EXPECT_EQ(answer.completion.report.kept_tokens, 128);
  EXPECT_EQ(answer.tokens, Expected(lossy));
  EXPECT_EQ(fixture.Read(*other).tokens, Expected(urgent));
}

TEST_P(SnapKvTest, AloneItNeedsNoMoreThanWhatARequestHas) {
  cache_options_.context_tokens = 1024;
  cache_options_.budget_bytes = LeastBudget(executor_.card().state, cache_options_);
  EngineFixture fixture(executor_, cache_options_);
  for (const int32_t budget : {900, 500, 30}) {
    const GenerateRequest lossy = Lossy(1, 1000, 20, {.budget = budget, .window = 16});
    const auto answer = fixture.Ask(lossy);
    EXPECT_EQ(answer.completion.reason, FinishReason::kLength)
        << answer.completion.status.message();
    EXPECT_EQ(answer.tokens, Expected(lossy));
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
    // What was stored of the prompt had to make room for it, and whoever comes back is told.
    if (budget < 900) continue;
    GenerateRequest exact = lossy;
    exact.snapkv.reset();
    const auto whole = fixture.Ask(exact);
    EXPECT_LT(whole.completion.report.used_tokens, 900);
    EXPECT_EQ(NameOf(whole.completion.report.reason), NameOf(MissReason::kEvicted));
  }
}

// Whoever starts beside others has room to be compacted in: nobody computes a prompt to be sent
// back for want of it.
TEST_P(SnapKvTest, RoomToBeCompactedIsPartOfWhatARequestWants) {
  cache_options_.context_tokens = 1024;
  const size_t least = LeastBudget(executor_.card().state, cache_options_);
  uint64_t most_running = 0;
  for (size_t blocks = 0; blocks < 40; blocks += 3) {
    cache_options_.budget_bytes = least + blocks * executor_.card().state.kv_block_bytes();
    EngineFixture fixture(executor_, cache_options_);
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (uint64_t i = 0; i < 6; ++i) {
      streams.push_back(fixture.Submit(Lossy(i, 1000, 20, {.budget = 500, .window = 16})));
    }
    while (fixture.engine().Step()) {
      most_running = std::max<uint64_t>(most_running, uint64_t(fixture.engine().stats().running));
    }
    for (const auto& stream : streams) {
      const auto answer = fixture.Read(*stream);
      EXPECT_EQ(answer.completion.reason, FinishReason::kLength);
      EXPECT_EQ(answer.completion.preemptions, 0) << blocks << " blocks more";
      EXPECT_EQ(answer.completion.report.kept_tokens, 500);
    }
  }
  EXPECT_GE(most_running, 3u);
}

TEST_P(SnapKvTest, CancelledItGivesEverythingBack) {
  EngineFixture fixture(executor_);
  for (const int steps : {1, 2, 3, 4, 10}) {
    const auto stream = fixture.Submit(Lossy(uint64_t(steps), 1000, 1000));
    for (int i = 0; i < steps; ++i) fixture.engine().Step();
    stream->Cancel();
    fixture.RunAll();
    EXPECT_EQ(fixture.cache().stats().leases, 0u);
    EXPECT_EQ(fixture.cache().stats().bytes_leased, 0u);
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
  }
}

TEST_P(SnapKvTest, LeavesOutAgainWhileDecoding) {
  engine_options_.snapkv.redecode = 40;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  const GenerateRequest lossy = Lossy(1, 500, 200);
  const auto stream = fixture.Submit(lossy);
  bool left_out = false;
  while (fixture.engine().Step()) {
    left_out = left_out || fixture.cache().stats().compactions > 0;
    ASSERT_TRUE(!left_out || fixture.cache().stats().blocks_leased <= 3);
  }
  EXPECT_EQ(fixture.cache().stats().compactions, 1u + 199u / 40u);
  EXPECT_EQ(fixture.Read(*stream).tokens, Expected(lossy, 40));
}

TEST_P(SnapKvTest, TheServersDefaultAndARequestThatWantsAll) {
  engine_options_.snapkv = kSnap;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  GenerateRequest request = Talk().Say(1, 600).Request(10);
  EXPECT_EQ(fixture.Ask(request).completion.report.kept_tokens, 128);
  request.snapkv = SnapKv();
  EXPECT_EQ(fixture.Ask(request).completion.report.kept_tokens, 0);
  request.snapkv = SnapKv{.share = 0.5, .window = 8};
  EXPECT_EQ(fixture.Ask(request).completion.report.kept_tokens, 300);
  // Without a reply there is nothing to leave out for.
  request.max_tokens = 0;
  EXPECT_EQ(fixture.Ask(request).completion.report.kept_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SnapKvTest,
                         testing::Values(FakeExecutor::Kind::kAttention,
                                         FakeExecutor::Kind::kHybrid),
                         [](const auto& kind) {
                           return kind.param == FakeExecutor::Kind::kHybrid ? "hybrid"
                                                                            : "attention";
                         });

TEST(SnapKvRefusals, SayWhy) {
  FakeExecutor recurrent(FakeExecutor::Kind::kRecurrent);
  EngineFixture no_attention(recurrent);
  GenerateRequest request = Conversation(FakeExecutor::kVocab).Say(1, 10).Request(1);
  request.snapkv = SnapKv{.budget = 100};
  EXPECT_NE(no_attention.engine().Submit(request).status().message().find("full attention"),
            std::string::npos);
  FakeExecutor hybrid(FakeExecutor::Kind::kHybrid);
  EngineFixture fixture(hybrid);
  request.snapkv = SnapKv{.budget = 100, .window = 0};
  EXPECT_EQ(fixture.engine().Submit(request).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reprise
