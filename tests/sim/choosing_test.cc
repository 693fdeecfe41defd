// SPDX-License-Identifier: Apache-2.0
// Proves that an engine whose device chooses tokens says what one says that chooses on the host:
// every kind of request in one batch, requests that look at logits among them, and choices that the
// device has no memory for.
#include <gtest/gtest.h>

#include "choosing_executor.h"
#include "device/scarce_memory.h"
#include "engine_fixture.h"

namespace reprise {
namespace {

Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

// Requests that use every part of a choice, of different lengths, so that a step has rows of some
// and none of others.
std::vector<GenerateRequest> Requests() {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 24; ++i) {
    GenerateRequest request = Talk().Say(i, int32_t(10 + 40 * (i % 7))).Request(int32_t(5 + i));
    SamplingParams& sampling = request.sampling;
    sampling.seed = i;
    sampling.temperature = i % 4 == 0 ? 0.0f : 0.3f * float(i % 5 + 1);
    if (i % 3 == 0) sampling.top_k = 5;
    if (i % 3 == 1) sampling.top_p = 0.8f;
    if (i % 5 == 2) sampling.min_p = 0.1f;
    if (i % 2 == 0) sampling.logit_bias = {{3, 0.5f}, {1, -0.5f}, {3, 0.25f}};
    if (i % 4 == 1) sampling.frequency_penalty = 0.4f;
    if (i % 6 == 5) sampling.repetition_penalty = 1.2f;
    if (i % 3 == 2) request.logprobs = int32_t(i % 4);
    if (i % 8 == 3) {
      request.end_tokens = {2, 5};
      request.min_tokens = 4;
    }
    requests.push_back(request);
  }
  return requests;
}

// Nothing but three tokens, which are seldom the likeliest.
class OnlyThree final : public TokenConstraint {
 public:
  Status Fill(TokenMask* allowed) override {
    allowed->Clear();
    for (TokenId token = 1; token <= 3; ++token) allowed->Allow(token);
    return OkStatus();
  }
  Status Accept(TokenId token) override {
    return token >= 1 && token <= 3 ? OkStatus() : InvalidArgument("not one of the three");
  }
  void Force(std::vector<TokenId>*) override {}
  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<OnlyThree>(); }
};

struct Said {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason reason;
  bool operator==(const Said&) const = default;
};

std::vector<Said> Answers(Executor& executor, const std::vector<GenerateRequest>& requests,
                          int sequences = 8) {
  CacheOptions cache;
  cache.sequence_count = sequences;
  EngineOptions engine;
  engine.running_max = sequences;
  engine.waiting_max = 1000;
  EngineFixture fixture(executor, cache, engine);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (const GenerateRequest& request : requests) streams.push_back(fixture.Submit(request));
  fixture.RunAll();
  std::vector<Said> all;
  for (const auto& stream : streams) {
    const TokenStream::Update update = stream->Poll();
    Said said;
    for (const GeneratedToken& token : update.tokens) {
      said.tokens.push_back(token.chosen.token);
      said.logprobs.push_back(token.chosen.logprob);
      for (const TokenLogprob& other : token.top) {
        said.tokens.push_back(other.token);
        said.logprobs.push_back(other.logprob);
      }
    }
    said.reason = update.completion->reason;
    all.push_back(said);
  }
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
  return all;
}

TEST(ChoosingEngine, SaysWhatTheHostWouldSay) {
  FakeExecutor host(FakeExecutor::Kind::kHybrid);
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EXPECT_EQ(Answers(device, Requests()), Answers(host, Requests()));
  EXPECT_GT(device.begun(), 0);
}

// Counts how often memory is asked for while the device has nothing to do.
class GettingMemory final : public ChoosingExecutor {
 public:
  using ChoosingExecutor::ChoosingExecutor;
  Status Begin(const BatchView& batch, const StateMemory& memory) override {
    waited_.push_back(memory_of_.commits() - before_);
    return ChoosingExecutor::Begin(batch, memory);
  }
  Status Choose(const ChoiceBatch& asked, const ChoiceResults& results,
                const Work& meanwhile) override {
    const Status chosen = ChoosingExecutor::Choose(asked, results, meanwhile);
    before_ = memory_of_.commits();
    return chosen;
  }
  ScarceMemory& of() { return memory_of_; }
  const std::vector<int>& waited() const { return waited_; }  // of each step

 private:
  ScarceMemory memory_of_{SIZE_MAX, 4096};
  std::vector<int> waited_;
  int before_ = 0;
};

// A GPU takes 0.1 ms for a page of 2 MiB. While a long prompt goes on, only its first step waits.
TEST(ChoosingEngine, MemoryForTheNextStepIsGotWhileTheDeviceIsBusy) {
  GettingMemory device(FakeExecutor::Kind::kHybrid);
  device.set_memory(&device.of());
  EngineFixture fixture(device);
  const auto stream = fixture.Submit(Talk().Say(1, 3500).Request(1));
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kLength);
  ASSERT_GE(device.waited().size(), 6u);
  EXPECT_GT(device.waited()[0], 0);
  for (size_t i = 1; i < device.waited().size(); ++i) EXPECT_EQ(device.waited()[i], 0) << i;
}

// A device that is told before the step how tokens are chosen does so with it. Each of these beside
// one that asks for the largest logit. Where a mask is still to be filled it must not be told.
TEST(ChoosingEngine, SaysBeforeTheStepWhatIsToBeChosen) {
  const auto greedy = [](uint64_t seed) {
    GenerateRequest request = Talk().Say(seed, 30).Request(12);
    request.sampling.temperature = 0;
    return request;
  };
  std::vector<GenerateRequest> others(9, greedy(2));
  others[1].sampling.temperature = 0.7f;
  others[2].sampling.logit_bias = {{3, 5.0f}};
  others[3].sampling.frequency_penalty = 2;
  others[4].sampling.repetition_penalty = 3;
  others[5].sampling.presence_penalty = 2;
  others[6].logprobs = 0;
  others[7].end_tokens = {2, 5, 7, 11};
  others[7].min_tokens = 12;
  others[8].constraint = std::make_shared<OnlyThree>();
  for (size_t i = 0; i < others.size(); ++i) {
    const std::vector<GenerateRequest> requests = {greedy(1), others[i]};
    FakeExecutor host(FakeExecutor::Kind::kHybrid);
    ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
    EXPECT_EQ(Answers(device, requests), Answers(host, requests)) << i;
    EXPECT_EQ(device.told_begun() > 0, i != 8) << i;
  }
}

// A device that is told of a long list would wait for it: with so many sequences that say what was
// said, it is not told before the step, and chooses the same.
TEST(ChoosingEngine, TellsLongListsWhileTheDeviceIsBusy) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 400; ++i) {
    GenerateRequest request = Talk().Say(i, 40).Request(240);
    request.sampling.temperature = 0;
    request.sampling.frequency_penalty = 1;
    requests.push_back(std::move(request));
  }
  FakeExecutor host(FakeExecutor::Kind::kHybrid);
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EXPECT_EQ(Answers(device, requests, 400), Answers(host, requests, 400));
  EXPECT_GT(device.said_most(), size_t{4096}) << "so many were never asked for at once";
  EXPECT_LE(device.told_most(), size_t{4096});
}

// What comes while the device is at a step is in the queue and looked up when the step is over.
TEST(ChoosingEngine, WorksAheadWhileTheDeviceIsBusy) {
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EngineFixture fixture(device);
  (void)fixture.Ask(Talk().Say(1, 200).Request(4));
  std::shared_ptr<TokenStream> second;
  bool posted = false;
  device.During([&] {
    if (second) return;
    second = fixture.Submit(Talk().Say(1, 200).Request(4));
    fixture.engine().Post([&](StateCache&) { posted = true; });
  });
  const auto first = fixture.Submit(Talk().Say(2, 40).Request(20));
  ASSERT_TRUE(fixture.engine().Step());
  EXPECT_FALSE(posted) << "tasks have the cache between two steps only";
  const auto& waiting = fixture.engine().roster().waiting();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_TRUE(waiting.front()->lease.valid());
  ASSERT_TRUE(fixture.engine().Step());
  EXPECT_TRUE(posted);
  fixture.RunAll();
  EXPECT_GT(EngineFixture::Read(*second).completion.report.used_tokens, 0);
  EXPECT_EQ(EngineFixture::Read(*first).tokens.size(), 20u);
}

// Idle work that the device is at is not replaced by idle work that comes meanwhile.
TEST(ChoosingEngine, LeavesIdleWorkThatRunsAlone) {
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EngineOptions options;
  options.idle_max = 1;
  EngineFixture fixture(device, {}, options);
  const auto idle = [&](uint64_t seed) {
    GenerateRequest request = Talk().Say(seed, 100).Request(0);
    request.idle = true;
    return fixture.Submit(request);
  };
  std::shared_ptr<TokenStream> second;
  device.During([&] {
    if (!second) second = idle(2);
  });
  const auto first = idle(1);
  ASSERT_TRUE(fixture.engine().Step());
  fixture.RunAll();
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->Poll().completion.has_value());
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

TEST(ChoosingEngine, BringsLogitsToWhoeverLooksAtThem) {
  std::vector<GenerateRequest> requests = Requests();
  int seen = 0;
  requests[4].on_logits = [&](int32_t, std::span<const float>) { ++seen; };
  FakeExecutor host(FakeExecutor::Kind::kHybrid);
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EXPECT_EQ(Answers(device, requests), Answers(host, requests));
  EXPECT_GT(seen, 0);
  EXPECT_GT(device.begun(), 0) << "the steps without it";
}

TEST(ChoosingEngine, AChoiceWithoutMemoryEndsItsRequestsOnly) {
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EngineFixture fixture(device);
  const auto first = fixture.Ask(Talk().Say(1, 50).Request(5));
  device.RefuseChoices(1);
  const auto failed = fixture.Ask(Talk().Say(2, 50).Request(5));
  EXPECT_EQ(failed.completion.reason, FinishReason::kFailed);
  EXPECT_EQ(failed.completion.status.message(), "no memory to choose in");
  EXPECT_EQ(fixture.Ask(Talk().Say(1, 50).Request(5)).tokens, first.tokens);
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

TEST(ChoosingEngine, AStateThatIsNotFiniteEndsItsRequest) {
  ChoosingExecutor device(FakeExecutor::Kind::kHybrid);
  EngineFixture fixture(device);
  GenerateRequest request = Talk().Say(1, 50).Request(5);
  device.PoisonToken(request.prompt[20]);
  EXPECT_EQ(fixture.Ask(request).completion.reason, FinishReason::kFailed);
}

}  // namespace
}  // namespace reprise
