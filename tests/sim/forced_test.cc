// SPDX-License-Identifier: Apache-2.0
// What a constraint forces is said in one step, and changes nothing else: the same tokens one by
// one, in a crowd, and behind reused state. A constraint whose masks take long holds up its own
// sequence only.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

constexpr TokenId kForced[] = {11, 12, 13};

// Any token below 10, then the forced ones, and again.
class Refrain final : public TokenConstraint {
 public:
  explicit Refrain(bool begins_forced) : free_(!begins_forced) {}

  Status Fill(TokenMask* allowed) override {
    allowed->Clear();
    for (TokenId token = 0; token < 10; ++token) allowed->Allow(token);
    return OkStatus();
  }
  Status Accept(TokenId token) override {
    if (!free_ || token >= 10) return InvalidArgument("not now");
    free_ = false;
    return OkStatus();
  }
  void Force(std::vector<TokenId>* tokens) override {
    if (free_) return;
    tokens->assign(std::begin(kForced), std::end(kForced));
    free_ = true;
  }
  std::unique_ptr<TokenConstraint> Clone() const override {
    return std::make_unique<Refrain>(*this);
  }

 private:
  bool free_;
};

class ForcedTest : public testing::Test {
 protected:
  static GenerateRequest Request(uint64_t seed, int32_t tokens, bool begins_forced = false) {
    GenerateRequest request = Conversation(FakeExecutor::kVocab).Say(seed, 50).Request(tokens);
    request.constraint = std::make_shared<Refrain>(begins_forced);
    request.sampling.temperature = 1;
    request.sampling.seed = seed;
    return request;
  }

  FakeExecutor executor_{FakeExecutor::Kind::kHybrid};
};

TEST_F(ForcedTest, TakesOneStep) {
  EngineFixture fixture(executor_);
  const auto answer = fixture.Ask(Request(1, 12));
  ASSERT_EQ(answer.tokens.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    if (i % 4 == 0) {
      EXPECT_LT(answer.tokens[i], 10);
    } else {
      EXPECT_EQ(answer.tokens[i], kForced[i % 4 - 1]);
    }
  }
  EXPECT_EQ(answer.completion.steps, 3);
  EXPECT_EQ(answer.completion.generated_tokens, 12);
}

TEST_F(ForcedTest, MayBeginTheReply) {
  EngineFixture fixture(executor_);
  const auto answer = fixture.Ask(Request(1, 8, /*begins_forced=*/true));
  ASSERT_EQ(answer.tokens.size(), 8u);
  EXPECT_TRUE(std::equal(std::begin(kForced), std::end(kForced), answer.tokens.begin()));
  EXPECT_LT(answer.tokens[3], 10);
  EXPECT_EQ(answer.completion.steps, 3);
}

TEST_F(ForcedTest, OneByOneForThoseWhoAskForProbabilities) {
  EngineFixture fixture(executor_);
  const auto fast = fixture.Ask(Request(2, 15));
  GenerateRequest request = Request(2, 15);
  request.logprobs = 0;
  const auto slow = fixture.Ask(request);
  EXPECT_EQ(slow.tokens, fast.tokens);
  EXPECT_EQ(slow.completion.steps, 15);
}

TEST_F(ForcedTest, SameTokensInACrowdAndWithReuse) {
  EngineFixture alone(executor_);
  const auto expected = alone.Ask(Request(3, 21));
  EXPECT_EQ(alone.Ask(Request(3, 21)).tokens, expected.tokens);  // its prompt is stored
  EngineFixture crowd(executor_);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const uint64_t seed : {7, 3, 8, 9}) streams.push_back(crowd.Submit(Request(seed, 21)));
  crowd.RunAll();
  EXPECT_EQ(EngineFixture::Read(*streams[1]).tokens, expected.tokens);

  // What was said, forced tokens and all, is state like any other.
  GenerateRequest next = Request(3, 1);
  next.prompt.insert(next.prompt.end(), expected.tokens.begin(), expected.tokens.end());
  next.prompt.push_back(5);
  EXPECT_GE(alone.Ask(next).completion.report.known_tokens, 50 + 20);
}

TEST_F(ForcedTest, LimitsAndEndsCutIt) {
  EngineFixture fixture(executor_);
  const auto cut = fixture.Ask(Request(4, 6));
  EXPECT_EQ(cut.tokens.size(), 6u);
  EXPECT_EQ(cut.completion.reason, FinishReason::kLength);
  GenerateRequest request = Request(4, 6);
  request.end_tokens = {12};
  const auto ended = fixture.Ask(request);
  EXPECT_EQ(ended.tokens.size(), 2u);
  EXPECT_EQ(ended.completion.reason, FinishReason::kEndToken);
}

// Tokens below 10. The first mask takes long; the others until the gate is open.
class Ponderous final : public TokenConstraint {
 public:
  explicit Ponderous(std::shared_ptr<std::atomic<bool>> gate) : gate_(std::move(gate)) {}

  Status Fill(TokenMask* allowed) override {
    const double begin = ThreadSeconds();
    while (ThreadSeconds() - begin < 0.005) {
    }
    while (asked_ && !*gate_) std::this_thread::yield();
    asked_ = true;
    allowed->Clear();
    for (TokenId token = 0; token < 10; ++token) allowed->Allow(token);
    return OkStatus();
  }
  Status Accept(TokenId) override { return OkStatus(); }
  void Force(std::vector<TokenId>*) override {}
  std::unique_ptr<TokenConstraint> Clone() const override { return nullptr; }

 private:
  const std::shared_ptr<std::atomic<bool>> gate_;
  bool asked_ = false;
};

TEST_F(ForcedTest, SlowMasksHoldUpNobodyElse) {
  const auto open = std::make_shared<std::atomic<bool>>(true);
  const auto gate = std::make_shared<std::atomic<bool>>(false);
  const auto slow_request = [&](const std::shared_ptr<std::atomic<bool>>& by) {
    GenerateRequest request = Request(1, 4);
    request.constraint = std::make_shared<Ponderous>(by);
    return request;
  };
  const auto alone = EngineFixture(executor_).Ask(slow_request(open));
  EngineFixture fixture(executor_);
  const auto slow = fixture.Submit(slow_request(gate));
  GenerateRequest request = Conversation(FakeExecutor::kVocab).Say(2, 50).Request(30);
  const auto other = fixture.Submit(std::move(request));
  std::optional<Completion> completion;
  for (int step = 0; step < 200 && !completion; ++step) {
    ASSERT_TRUE(fixture.engine().Step());
    completion = other->Poll().completion;
  }
  ASSERT_TRUE(completion) << "it waits for the masks of another";
  EXPECT_EQ(completion->generated_tokens, 30);
  TokenStream::Update first = slow->Poll();
  EXPECT_EQ(first.tokens.size(), 1u);
  EXPECT_FALSE(first.completion);
  *gate = true;
  fixture.RunAll();
  const auto rest = EngineFixture::Read(*slow);
  ASSERT_EQ(rest.tokens.size(), 3u);
  EXPECT_EQ(first.tokens[0].chosen.token, alone.tokens[0]);
  EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(), alone.tokens.begin() + 1));
}

// One that leaves meanwhile takes nothing with it.
TEST_F(ForcedTest, ASequenceMayEndWhileItsMaskIsMade) {
  const auto gate = std::make_shared<std::atomic<bool>>(false);
  EngineFixture fixture(executor_);
  GenerateRequest request = Request(1, 4);
  request.constraint = std::make_shared<Ponderous>(gate);
  const auto slow = fixture.Submit(std::move(request));
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(fixture.engine().Step());
  slow->Cancel();
  for (int step = 0; step < 4; ++step) fixture.engine().Step();
  EXPECT_EQ(slow->Poll().completion->reason, FinishReason::kCancelled);
  *gate = true;
  fixture.RunAll();
}

}  // namespace
}  // namespace reprise
