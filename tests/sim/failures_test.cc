// SPDX-License-Identifier: Apache-2.0
// A device that fails, or has no memory: the requests that it concerns fail by name or are tried
// again, what was computed on the way is never used, and the engine lives.
#include <gtest/gtest.h>

#include <string>

#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

class FailuresTest : public testing::TestWithParam<FakeExecutor::Kind> {
 protected:
  Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

  struct Outcome {
    std::vector<EngineFixture::Answer> answers;
    int steps = 0;
    int preemptions = 0;
  };
  // Four conversations at once, of which two begin alike; the n-th step fails (0: none).
  Outcome Serve(int n, const Status& failure) {
    FakeExecutor executor(GetParam());
    EngineFixture fixture(executor);
    executor.FailStep(n, failure);
    std::vector<std::shared_ptr<TokenStream>> streams;
    streams.push_back(fixture.Submit(Talk().Say(1, 700).Request(12)));
    streams.push_back(fixture.Submit(Talk().Say(2, 90).Request(9)));
    streams.push_back(fixture.Submit(Talk().Say(2, 90).Say(3, 40).Request(9)));
    streams.push_back(fixture.Submit(Talk().Say(4, 5).Request(30)));
    fixture.RunAll();
    Outcome outcome;
    for (const auto& stream : streams) outcome.answers.push_back(EngineFixture::Read(*stream));
    outcome.steps = executor.steps();
    for (const auto& answer : outcome.answers) {
      outcome.preemptions += answer.completion.preemptions;
    }
    // And again, from what was stored.
    outcome.answers.push_back(fixture.Ask(Talk().Say(1, 700).Request(12)));
    outcome.answers.push_back(fixture.Ask(Talk().Say(2, 90).Say(3, 40).Request(9)));
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
    return outcome;
  }
};

TEST_P(FailuresTest, AStepThatRunsOutOfMemoryIsTriedAgainFromWhatIsStored) {
  const Outcome plain = Serve(0, OkStatus());
  for (const Status& failure : {DataLoss("no more on the way"), ResourceExhausted("no more")}) {
    int sent_back = 0;
    for (int n = 1; n <= plain.steps; ++n) {
      const Outcome outcome = Serve(n, failure);
      for (size_t i = 0; i < plain.answers.size(); ++i) {
        EXPECT_EQ(outcome.answers[i].completion.reason, FinishReason::kLength) << n << " " << i;
        EXPECT_EQ(outcome.answers[i].tokens, plain.answers[i].tokens) << n << " " << i;
      }
      sent_back += outcome.preemptions;
    }
    EXPECT_EQ(sent_back > 0, failure.code() == StatusCode::kDataLoss);
  }
}

TEST_P(FailuresTest, AStepThatTheDeviceDidNotDoFailsItsRequestsByName) {
  const Outcome plain = Serve(0, OkStatus());
  for (int n = 1; n <= plain.steps; ++n) {
    const Outcome outcome = Serve(n, Internal("GPU 0 did not start FillRows"));
    int failed = 0;
    for (size_t i = 0; i < plain.answers.size(); ++i) {
      const EngineFixture::Answer& answer = outcome.answers[i];
      if (answer.completion.reason == FinishReason::kFailed) {
        ++failed;
        EXPECT_EQ(answer.completion.status.message(), "GPU 0 did not start FillRows");
        const auto& all = plain.answers[i].tokens;
        ASSERT_LE(answer.tokens.size(), all.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), all.begin())) << n;
      } else {
        EXPECT_EQ(answer.tokens, plain.answers[i].tokens) << n << " " << i;
      }
    }
    EXPECT_GT(failed, 0) << n;
    EXPECT_NE(outcome.answers[4].completion.reason, FinishReason::kFailed) << n;
    EXPECT_NE(outcome.answers[5].completion.reason, FinishReason::kFailed) << n;
  }
}

// What is cached makes way first, then steps get smaller, and grow again.
TEST_P(FailuresTest, StepsShrinkToWhatTheDeviceHasMemoryFor) {
  FakeExecutor executor(GetParam());
  EngineFixture fixture(executor);
  const auto first = fixture.Ask(Talk().Say(1, 500).Request(5));
  EXPECT_GT(fixture.cache().stats().entries, 0u);
  executor.set_rows_max(7);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (uint64_t i = 0; i < 12; ++i) {
    streams.push_back(fixture.Submit(Talk().Say(i + 10, i == 0 ? 500 : 20).Request(5)));
  }
  fixture.RunAll();
  for (const auto& stream : streams) {
    EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kLength);
  }
  executor.set_rows_max(SIZE_MAX);
  EXPECT_EQ(fixture.Ask(Talk().Say(1, 500).Request(5)).tokens, first.tokens);
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

TEST_P(FailuresTest, ARowThatDoesNotFitByItselfEndsItsRequest) {
  FakeExecutor executor(GetParam());
  EngineFixture fixture(executor);
  executor.set_rows_max(0);
  const auto failed = fixture.Ask(Talk().Say(1, 50).Request(5));
  EXPECT_EQ(failed.completion.reason, FinishReason::kFailed);
  EXPECT_EQ(failed.completion.status.message(), "no memory to compute in");
  executor.set_rows_max(SIZE_MAX);
  EXPECT_EQ(fixture.Ask(Talk().Say(1, 50).Request(5)).completion.reason, FinishReason::kLength);
}

// Work for a turn that may come is given up, whatever it was that failed.
TEST_P(FailuresTest, IdleWorkThatFailsIsForgotten) {
  const Status failures[] = {DataLoss("no more"), ResourceExhausted("no more"), Internal("no")};
  for (const Status& failure : failures) {
    FakeExecutor executor(GetParam());
    EngineFixture fixture(executor);
    GenerateRequest idle = Talk().Say(1, 300).Request(0);
    idle.idle = true;
    executor.FailStep(2, failure);
    fixture.Submit(idle);
    fixture.RunAll();
    EXPECT_EQ(fixture.Ask(Talk().Say(1, 300).Request(5)).completion.reason, FinishReason::kLength);
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FailuresTest,
                         testing::Values(FakeExecutor::Kind::kAttention,
                                         FakeExecutor::Kind::kRecurrent,
                                         FakeExecutor::Kind::kHybrid));

}  // namespace
}  // namespace reprise
