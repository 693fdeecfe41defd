// SPDX-License-Identifier: Apache-2.0
// What the engine promises about vectors of texts: the same bits alone and among others, in steps
// of any size, after being sent back, and from reused state; and nothing of them in the cache.
#include <gtest/gtest.h>

#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

class VectorTest : public testing::TestWithParam<Pooling> {
 protected:
  GenerateRequest Text(uint64_t seed, int32_t tokens) {
    GenerateRequest request = Conversation(FakeExecutor::kVocab).Say(seed, tokens).Request(0);
    request.pooling = GetParam();
    request.cache_write = false;
    return request;
  }

  // Straight from the tokens.
  std::vector<float> Cold(const GenerateRequest& request) {
    constexpr size_t kDim = FakeExecutor::kVocab;
    std::vector<float> rows(request.prompt.size() * kDim);
    executor_.ColdLogits(0, request.prompt, rows.data());
    const bool mean = GetParam() == Pooling::kMean;
    std::vector<double> pooled(kDim);
    for (size_t i = mean ? 0 : rows.size() - kDim; i < rows.size(); ++i) {
      pooled[i % kDim] += double{rows[i]};
    }
    std::vector<float> vector;
    for (const double sum : pooled) {
      vector.push_back(float(sum / (mean ? double(request.prompt.size()) : 1)));
    }
    return vector;
  }

  FakeExecutor executor_{FakeExecutor::Kind::kHybrid};
};

TEST_P(VectorTest, IsTheSameInAnyStepAndCompany) {
  for (const int32_t rows : {3, 64, 1000}) {
    EngineOptions options;
    options.scheduler.rows_max = rows;
    EngineFixture fixture(executor_, {}, options);
    std::vector<GenerateRequest> texts;
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (uint64_t i = 0; i < 5; ++i) {
      texts.push_back(Text(i, 1 + static_cast<int32_t>(i) * 40));
      streams.push_back(fixture.Submit(texts.back()));
      fixture.Submit(Conversation(FakeExecutor::kVocab).Say(100 + i, 90).Request(20));
    }
    fixture.RunAll();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto answer = fixture.Read(*streams[i]);
      EXPECT_EQ(answer.completion.vector, Cold(texts[i])) << rows << " rows, text " << i;
      EXPECT_TRUE(answer.tokens.empty());
    }
  }
}

TEST_P(VectorTest, SurvivesBeingSentBack) {
  EngineOptions options;
  options.scheduler.rows_max = 32;
  options.running_max = 2;
  EngineFixture fixture(executor_, {}, options);
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<GenerateRequest> texts;
  for (uint64_t i = 0; i < 6; ++i) {
    texts.push_back(Text(i, 400));
    streams.push_back(fixture.Submit(texts.back()));
  }
  for (int step = 0; step < 20; ++step) fixture.engine().Step();
  GenerateRequest urgent = Conversation(FakeExecutor::kVocab).Say(50, 400).Request(30);
  urgent.priority = 9;
  fixture.Submit(urgent);
  fixture.RunAll();
  int32_t preemptions = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto answer = fixture.Read(*streams[i]);
    EXPECT_EQ(answer.completion.vector, Cold(texts[i])) << i;
    preemptions += answer.completion.preemptions;
  }
  EXPECT_GT(preemptions, 0) << "the test does not test it";
}

TEST_P(VectorTest, LeavesNothingInTheCacheAndMayReadIt) {
  EngineFixture fixture(executor_);
  const GenerateRequest text = Text(1, 300);
  const auto cold = fixture.Ask(text);
  EXPECT_EQ(fixture.cache().stats().entries, 0u);
  EXPECT_EQ(fixture.cache().stats().bytes_cached, 0u);
  // Somebody has talked about the same text.
  GenerateRequest chat = text;
  chat.pooling = Pooling::kNone;
  chat.cache_write = true;
  chat.max_tokens = 3;
  fixture.Ask(chat);
  const auto warm = fixture.Ask(text);
  EXPECT_EQ(warm.completion.vector, cold.completion.vector);
  EXPECT_EQ(warm.completion.report.used_tokens > 200, GetParam() == Pooling::kLast);
}

TEST_P(VectorTest, ComesWithoutAReplyAndNeverFromStateThatIsNotFinite) {
  EngineFixture fixture(executor_);
  GenerateRequest text = Text(1, 30);
  text.max_tokens = 1;
  EXPECT_EQ(fixture.engine().Submit(text).status().code(), StatusCode::kInvalidArgument);
  text.max_tokens = 0;
  executor_.PoisonToken(text.prompt[3]);
  EXPECT_EQ(fixture.Ask(text).completion.reason, FinishReason::kFailed);
}

INSTANTIATE_TEST_SUITE_P(Poolings, VectorTest, testing::Values(Pooling::kMean, Pooling::kLast),
                         [](const auto& param) {
                           return param.param == Pooling::kMean ? "Mean" : "Last";
                         });

}  // namespace
}  // namespace reprise
