// SPDX-License-Identifier: Apache-2.0
// What a stream waits for beside a long prompt, with the options and about the pace of a GPU: by a
// clock that the model moves.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_fixture.h"
#include "paced_executor.h"

namespace reprise {
namespace {

constexpr int32_t kPrompt = 26000;
constexpr double kGapMs = 50;

EngineOptions OptionsOfGpu() {
  EngineOptions options;
  options.running_max = 256;
  options.scheduler.rows_max = 4096;
  options.scheduler.rows_alone = 512;
  options.scheduler.gap_ms_max = kGapMs;
  options.scheduler.slow_down_max = 0;
  return options;
}

CacheOptions CacheOfGpu() {
  CacheOptions cache;
  cache.context_tokens = 40000;
  cache.sequence_count = 256;
  cache.budget_bytes = size_t{2} << 30;
  return cache;
}

class GapTest : public ::testing::TestWithParam<PacedExecutor::Kind> {
 protected:
  GapTest() {
    executor_.SetWatch(&fixture_.clock(), [this](const BatchView& batch) {
      longest_ms_ = std::max(longest_ms_, executor_.StepMs(batch.tokens.size()));
    });
    executor_.ChooseOnDevice([] {});
  }

  std::shared_ptr<TokenStream> Ask(int32_t prompt, int32_t reply) {
    GenerateRequest request;
    for (int32_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng_.Below(PacedExecutor::kVocab)));
    }
    request.max_tokens = reply;
    request.sampling.temperature = 0;
    return fixture_.Submit(std::move(request));
  }

  // Steps until a token of the stream comes. Returns when.
  int64_t NextToken(TokenStream* stream) {
    while (stream->Poll().tokens.empty()) EXPECT_TRUE(fixture_.engine().Step());
    return fixture_.clock().NowNs();
  }

  PacedExecutor executor_{GetParam(), {2.5, 0.039}};
  EngineFixture fixture_{executor_, CacheOfGpu(), OptionsOfGpu()};
  Rng rng_{1};
  double longest_ms_ = 0;
};

TEST_P(GapTest, BesideALongPromptAStreamWaitsAsLongAsPromised) {
  for (int i = 0; i < 4; ++i) {
    Ask(kPrompt, 1);
    fixture_.RunAll();
  }
  EXPECT_GT(longest_ms_, 1.9 * kGapMs) << "steps of a prompt alone are long";
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const auto stream = Ask(200, 8000);
    for (int i = 0; i < 8; ++i) NextToken(stream.get());
    int64_t last = fixture_.clock().NowNs();
    const auto prompt = Ask(kPrompt, 1);
    int tokens = 0;
    while (!prompt->Poll().completion) {
      const int64_t now = NextToken(stream.get());
      const double gap_ms = double(now - last) / 1e6;
      EXPECT_LE(gap_ms, kGapMs + 0.1);
      last = now;
      ++tokens;
    }
    EXPECT_LE(tokens, 25) << "the gap is used: the prompt is not kept back";
    stream->Cancel();
    fixture_.RunAll();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GapTest,
                         ::testing::Values(PacedExecutor::Kind::kAttention,
                                           PacedExecutor::Kind::kHybrid));

}  // namespace
}  // namespace reprise
