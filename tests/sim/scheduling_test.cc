// SPDX-License-Identifier: Apache-2.0
// Who runs, who waits, who makes way: one limit for all models, one order for everything, shares
// for tenants, and idle work that is in nobody's way. fairness_test.cc holds the same over
// thousands of seeds.
#include <gtest/gtest.h>

#include "engine_fixture.h"
#include "fake_executor.h"
#include "paced_executor.h"

namespace reprise {
namespace {

using Stream = std::shared_ptr<TokenStream>;

class SchedulingTest : public testing::Test {
 protected:
  Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

  GenerateRequest Ask(uint64_t seed, int32_t prompt, int32_t reply, int32_t priority = 0) {
    GenerateRequest request = Talk().Say(seed, prompt).Request(reply);
    request.priority = priority;
    return request;
  }

  // An attention-only model with memory for so many blocks of K/V, and what is known about them.
  EngineFixture& Blocks(size_t count) {
    const StateSpec& spec = executor_.card().state;
    cache_options_.context_tokens = 1024;
    cache_options_.budget_bytes = count * spec.kv_block_bytes() + (size_t{256} << 10);
    return Make();
  }
  EngineFixture& Make() {
    fixture_.emplace(executor_, cache_options_, engine_options_);
    return *fixture_;
  }

  // Steps until the stream has ended. Tokens are read and dropped.
  int StepsUntilEnd(TokenStream& stream, int most = 5000) {
    for (int step = 1; step <= most; ++step) {
      fixture_->engine().Step();
      TokenStream::Update update = stream.Poll();
      if (!update.completion) continue;
      last_ = *update.completion;
      return step;
    }
    return most + 1;
  }

  int32_t running() { return fixture_->engine().stats().running; }

  FakeExecutor executor_{FakeExecutor::Kind::kAttention};
  CacheOptions cache_options_;
  EngineOptions engine_options_;
  std::optional<EngineFixture> fixture_;
  Completion last_;
};

TEST_F(SchedulingTest, OneLimitForAllModels) {
  for (const auto kind : {FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kRecurrent,
                          FakeExecutor::Kind::kHybrid}) {
    FakeExecutor executor(kind);
    engine_options_.running_max = 3;
    engine_options_.waiting_max = 6;
    EngineFixture fixture(executor, cache_options_, engine_options_);
    std::vector<Stream> streams;
    for (uint64_t i = 0; i < 6; ++i) streams.push_back(fixture.Submit(Ask(i, 20, 10)));
    EXPECT_EQ(fixture.engine().Submit(Ask(9, 20, 10)).status().code(),
              StatusCode::kResourceExhausted);
    int32_t most = 0;
    while (fixture.engine().Step()) most = std::max(most, fixture.engine().stats().running);
    EXPECT_EQ(most, 3);
    for (const Stream& stream : streams) {
      EXPECT_EQ(EngineFixture::Read(*stream).tokens.size(), 10u);
    }
  }
}

// The one that needs memory is the last in the order: it goes back itself.
TEST_F(SchedulingTest, ANewerOneOfLowPrioritySendsNobodyBack) {
  EngineFixture& fixture = Blocks(20);
  auto old = fixture.Submit(Ask(1, 100, 800, 1));
  fixture.engine().Step();
  auto young = fixture.Submit(Ask(2, 60, 800, 0));
  fixture.RunAll();
  const auto first = EngineFixture::Read(*old);
  const auto second = EngineFixture::Read(*young);
  EXPECT_EQ(first.completion.preemptions, 0);
  EXPECT_GT(second.completion.preemptions, 0);
  EXPECT_EQ(first.tokens.size(), 800u);
  EXPECT_EQ(second.tokens.size(), 800u);
}

TEST_F(SchedulingTest, TheLastInTheOrderMakesWay) {
  EngineFixture& fixture = Blocks(26);
  std::vector<Stream> streams;
  const int32_t priorities[] = {0, 2, 1, 0};
  for (uint64_t i = 0; i < 4; ++i) {
    streams.push_back(fixture.Submit(Ask(i + 1, 100, 500, priorities[i])));
  }
  fixture.RunAll();
  std::vector<int32_t> preemptions;
  std::vector<double> ends;
  for (const Stream& stream : streams) {
    const auto answer = EngineFixture::Read(*stream);
    EXPECT_EQ(answer.tokens.size(), 500u);
    preemptions.push_back(answer.completion.preemptions);
    ends.push_back(answer.completion.total_ms);
  }
  EXPECT_EQ(preemptions[1], 0);
  EXPECT_GT(preemptions[3], 0) << "the newest of the lowest";
  EXPECT_LE(ends[1], ends[2]);
  EXPECT_LE(ends[2], ends[0]);
  EXPECT_LE(ends[0], ends[3]);
  // Whoever was sent back comes again when there is room, not to be sent back at once.
  EXPECT_LE(fixture.engine().stats().preemptions, 6u);
}

// One that was sent back stands in the queue where the order puts it: behind a higher priority,
// before those that came later.
TEST_F(SchedulingTest, WhoWasSentBackKeepsItsPlaceInTheOrder) {
  engine_options_.running_max = 1;
  EngineFixture& fixture = Blocks(40);
  auto low = fixture.Submit(Ask(1, 50, 100, 0));
  for (int i = 0; i < 5; ++i) fixture.engine().Step();
  auto later = fixture.Submit(Ask(2, 50, 20, 0));
  auto high = fixture.Submit(Ask(3, 50, 20, 2));
  auto middle = fixture.Submit(Ask(4, 50, 20, 1));
  fixture.RunAll();
  const auto first = EngineFixture::Read(*low);
  EXPECT_EQ(first.completion.preemptions, 1) << "a higher priority does not wait for a lower one";
  const double low_ms = first.completion.total_ms;
  const double high_ms = EngineFixture::Read(*high).completion.total_ms;
  const double middle_ms = EngineFixture::Read(*middle).completion.total_ms;
  const double later_ms = EngineFixture::Read(*later).completion.total_ms;
  EXPECT_LT(high_ms, middle_ms);
  EXPECT_LT(middle_ms, low_ms);
  EXPECT_LT(low_ms, later_ms + 5) << "they differ by the five steps before";
}

// After a preemption there is still room for small ones.
TEST_F(SchedulingTest, WhatFitsIsAdmitted) {
  EngineFixture& fixture = Blocks(30);
  std::vector<Stream> streams;
  for (uint64_t i = 0; i < 3; ++i) streams.push_back(fixture.Submit(Ask(i + 1, 64, 700)));
  while (fixture.engine().stats().preemptions == 0) ASSERT_TRUE(fixture.engine().Step());
  auto small = fixture.Submit(Ask(9, 10, 5, 3));
  EXPECT_LE(StepsUntilEnd(*small), 6);
  EXPECT_EQ(last_.reason, FinishReason::kLength);
  fixture.RunAll();
  for (const Stream& stream : streams) {
    EXPECT_EQ(EngineFixture::Read(*stream).tokens.size(), 700u);
  }
}

// To look up a long prompt takes as many steps as those that run must not notice it.
TEST_F(SchedulingTest, ALongPromptIsLookedUpInSeveralSteps) {
  PacedExecutor executor(PacedExecutor::Kind::kAttention, {});
  cache_options_.context_tokens = 300'000;
  cache_options_.budget_bytes = size_t{256} << 20;
  engine_options_.scheduler.rows_max = 100'000;
  engine_options_.running_max = 300;
  EngineFixture fixture(executor, cache_options_, engine_options_);
  const Conversation document = Conversation(PacedExecutor::kVocab).Say(1, 250'000);
  fixture.Ask(document.Request(1));
  const auto steps_to_start = [&](uint64_t seed) {
    auto stream = fixture.Submit(Conversation(document).Say(seed, 100).Request(1));
    for (int step = 1; step < 1000; ++step) {
      fixture.engine().Step();
      const TokenStream::Update update = stream->Poll();
      if (!update.started) continue;
      EXPECT_EQ(update.started->used_tokens, 250'000);
      return step;
    }
    return 1000;
  };
  EXPECT_LE(steps_to_start(2), 2) << "alone";
  fixture.RunAll();
  std::vector<Stream> others;
  for (uint64_t i = 0; i < 255; ++i) {
    others.push_back(
        fixture.Submit(Conversation(PacedExecutor::kVocab).Say(100 + i, 10).Request(1000)));
  }
  while (fixture.engine().stats().running < 255) ASSERT_TRUE(fixture.engine().Step());
  const int steps = steps_to_start(3);
  EXPECT_GE(steps, 25);
  EXPECT_LE(steps, 35);
}

// All of them are found in the next step, whether they run or wait, beside one that has ended.
TEST_F(SchedulingTest, ThoseThatAreCancelledTogetherEndTogether) {
  engine_options_.running_max = 3;
  EngineFixture& fixture = Make();
  auto ended = fixture.Submit(Ask(1, 10, 1));
  fixture.RunAll();
  std::vector<Stream> streams;
  for (uint64_t i = 2; i < 8; ++i) streams.push_back(fixture.Submit(Ask(i, 10, 1000)));
  while (running() < 3) fixture.engine().Step();
  ended->Cancel();
  for (const size_t i : {1, 2, 4}) streams[i]->Cancel();
  fixture.engine().Step();
  for (size_t i = 0; i < streams.size(); ++i) {
    const auto completion = streams[i]->Poll().completion;
    EXPECT_EQ(completion.has_value(), i == 1 || i == 2 || i == 4) << i;
    EXPECT_TRUE(!completion || completion->reason == FinishReason::kCancelled) << i;
  }
}

// Beside many, no step ends a request and starts another. Not even who cancels in every step keeps
// those that wait from starting.
TEST_F(SchedulingTest, BesideManyThePlaceOfACancelledOneIsTakenInTheNextStep) {
  const auto steps_to_start = [&](int32_t places, int cancels) {
    engine_options_.running_max = places;
    EngineFixture& fixture = Make();
    std::vector<Stream> streams;
    for (int32_t i = 0; i < places; ++i) {
      streams.push_back(fixture.Submit(Ask(static_cast<uint64_t>(i), 10, 1000)));
    }
    while (running() < places) fixture.engine().Step();
    auto next = fixture.Submit(Ask(1000, 10, 1000));
    fixture.engine().Step();
    EXPECT_FALSE(next->Poll().started);
    for (int step = 0; step < 10; ++step) {
      if (step < cancels) streams[static_cast<size_t>(step)]->Cancel();
      fixture.engine().Step();
      if (next->Poll().started) return step;
    }
    return 10;
  };
  EXPECT_EQ(steps_to_start(8, 1), 0);
  EXPECT_EQ(steps_to_start(80, 1), 1);
  EXPECT_EQ(steps_to_start(80, 10), 1);
}

TEST_F(SchedulingTest, WhoIsWaitedForIsAsUrgent) {
  engine_options_.scheduler.rows_max = 64;
  for (const auto kind : {FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kHybrid}) {
    FakeExecutor executor(kind);
    fixture_.emplace(executor, cache_options_, engine_options_);
    const Conversation shared = Talk().Say(7, 1000);
    auto flight = fixture_->Submit(shared.Request(1));
    fixture_->engine().Step();
    std::vector<Stream> others;
    for (uint64_t i = 0; i < 8; ++i) others.push_back(fixture_->Submit(Ask(20 + i, 900, 1, 1)));
    fixture_->engine().Step();
    GenerateRequest urgent = Conversation(shared).Say(8, 20).Request(1);
    urgent.priority = 5;
    auto stream = fixture_->Submit(urgent);
    EXPECT_LE(StepsUntilEnd(*stream), 22) << "the prefix alone takes 16 steps";
    EXPECT_GT(last_.report.used_tokens, 900) << "it was not computed twice";
    fixture_->RunAll();
  }
}

// Nobody comes or goes meanwhile: that its wait is over must be enough for it to be asked again.
TEST_F(SchedulingTest, WhoWaitsNoMoreTakesThePlaceOfOneBelow) {
  engine_options_.scheduler.rows_max = 64;
  engine_options_.running_max = 2;
  for (const auto kind : {FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kHybrid}) {
    FakeExecutor executor(kind);
    fixture_.emplace(executor, cache_options_, engine_options_);
    auto other = fixture_->Submit(Ask(20, 30, 600));
    const Conversation shared = Talk().Say(7, 1000);
    auto flight = fixture_->Submit(shared.Request(600));
    fixture_->engine().Step();
    ASSERT_EQ(running(), 2);
    GenerateRequest urgent = Conversation(shared).Say(8, 20).Request(1);
    urgent.priority = 5;
    auto stream = fixture_->Submit(urgent);
    EXPECT_LE(StepsUntilEnd(*stream), 40);
    EXPECT_GT(last_.report.used_tokens, 900);
    fixture_->RunAll();
  }
}

TEST_F(SchedulingTest, ATenantCannotFillTheQueue) {
  engine_options_.running_max = 1;
  engine_options_.waiting_max = 8;
  EngineFixture& fixture = Make();
  const auto ask = [&](uint64_t seed, const char* tenant) {
    GenerateRequest request = Ask(seed, 20, 3);
    request.tenant = tenant;
    return fixture.engine().Submit(request);
  };
  std::vector<Stream> loud;
  for (uint64_t i = 0; i < 8; ++i) loud.push_back(*ask(i, "loud"));
  EXPECT_FALSE(ask(10, "loud").ok());
  std::vector<Stream> quiet;
  for (uint64_t i = 0; i < 4; ++i) {
    auto stream = ask(20 + i, "quiet");
    ASSERT_TRUE(stream.ok()) << "it has less than half of the places";
    quiet.push_back(*stream);
  }
  EXPECT_FALSE(ask(30, "quiet").ok()) << "each has its half";
  fixture.RunAll();
  for (const Stream& stream : quiet) {
    EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kLength);
  }
  int displaced = 0;
  for (size_t i = 0; i < loud.size(); ++i) {
    const Completion end = EngineFixture::Read(*loud[i]).completion;
    if (end.reason != FinishReason::kFailed) continue;
    ++displaced;
    EXPECT_EQ(end.status.code(), StatusCode::kResourceExhausted);
    EXPECT_GE(i, 4u) << "the last ones make way";
  }
  EXPECT_EQ(displaced, 4);
  EXPECT_EQ(fixture.engine().stats().requests_displaced, 4u);
}

// Another choice of a request that runs is neither refused nor displaced.
TEST_F(SchedulingTest, WhatContinuesNeedsNoPlaceInTheQueue) {
  engine_options_.running_max = 1;
  engine_options_.waiting_max = 2;
  EngineFixture& fixture = Make();
  const auto ask = [&](uint64_t seed, const char* tenant, bool continues = false) {
    GenerateRequest request = Ask(seed, 20, 3);
    request.tenant = tenant;
    request.continues = continues;
    return fixture.engine().Submit(request);
  };
  std::vector<Stream> first = {*ask(0, "loud"), *ask(1, "loud")};
  EXPECT_FALSE(ask(2, "loud").ok());
  const auto more = ask(3, "loud", true);
  ASSERT_TRUE(more.ok());
  const auto quiet = ask(4, "quiet");
  ASSERT_TRUE(quiet.ok());
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(**more).completion.reason, FinishReason::kLength);
  EXPECT_EQ(EngineFixture::Read(**quiet).completion.reason, FinishReason::kLength);
  EXPECT_EQ(EngineFixture::Read(*first[0]).completion.reason, FinishReason::kLength);
  EXPECT_EQ(EngineFixture::Read(*first[1]).completion.reason, FinishReason::kFailed)
      << "it makes way for the other tenant";
}

// Long replies of one tenant fill all places; another one gets its share of them at once, by
// weight.
TEST_F(SchedulingTest, ATenantCannotKeepAllPlaces) {
  engine_options_.running_max = 4;
  EngineFixture& fixture = Make();
  const auto ask = [&](uint64_t seed, const char* tenant, int32_t reply, int32_t weight = 1) {
    GenerateRequest request = Ask(seed, 20, reply);
    request.tenant = tenant;
    request.tenant_weight = weight;
    return fixture.Submit(request);
  };
  std::vector<Stream> loud;
  for (uint64_t i = 0; i < 8; ++i) loud.push_back(ask(i, "loud", 300));
  for (int i = 0; i < 5; ++i) fixture.engine().Step();
  EXPECT_EQ(running(), 4);
  std::vector<Stream> quiet;
  for (uint64_t i = 0; i < 4; ++i) quiet.push_back(ask(20 + i, "quiet", 10));
  EXPECT_LE(StepsUntilEnd(*quiet[0]), 12);
  EXPECT_LE(StepsUntilEnd(*quiet[3]), 12) << "two at a time";
  EXPECT_EQ(fixture.engine().stats().preemptions, 2u);
  auto heavy = ask(40, "heavy", 5, 100);
  EXPECT_LE(StepsUntilEnd(*heavy), 7);
  fixture.RunAll();
  for (const Stream& stream : loud) {
    EXPECT_EQ(EngineFixture::Read(*stream).tokens.size(), 300u) << "nobody loses a token";
  }
}

// With one place, tenants take turns, whoever has asked for more before.
TEST_F(SchedulingTest, TenantsTakeTurns) {
  engine_options_.running_max = 1;
  EngineFixture& fixture = Make();
  std::vector<Stream> loud;
  for (uint64_t i = 0; i < 10; ++i) {
    GenerateRequest request = Ask(i, 20, 4);
    request.tenant = "loud";
    loud.push_back(fixture.Submit(request));
  }
  fixture.engine().Step();
  GenerateRequest request = Ask(20, 20, 4);
  request.tenant = "quiet";
  auto quiet = fixture.Submit(request);
  EXPECT_LE(StepsUntilEnd(*quiet), 12) << "at most two others first";
}

class IdleWorkTest : public SchedulingTest {
 protected:
  GenerateRequest Idle(uint64_t seed, int32_t prompt) {
    GenerateRequest request = Talk().Say(seed, prompt).Request(0);
    request.idle = true;
    return request;
  }
};

TEST_F(IdleWorkTest, IsNoRequestOfAClient) {
  EngineFixture& fixture = Make();
  fixture.Submit(Idle(1, 100));
  fixture.Submit(Idle(2, 100))->Cancel();
  fixture.Ask(Ask(3, 20, 2));
  fixture.RunAll();
  const EngineStats stats = fixture.engine().stats();
  EXPECT_EQ(stats.requests_submitted, 1u);
  EXPECT_EQ(stats.requests_finished, 1u);
  EXPECT_EQ(stats.requests_cancelled, 0u);
  EXPECT_EQ(stats.idle_finished, 1u);
  EXPECT_EQ(stats.idle_dropped, 1u);
}

TEST_F(IdleWorkTest, TakesNoPinnedStateAway) {
  EngineFixture& fixture = Blocks(16);  // half for the pin, and idle work wants nearly all
  GenerateRequest pinned = Ask(1, 500, 1);
  pinned.pin_ms = 1'000'000;
  fixture.Ask(pinned);
  for (uint64_t i = 0; i < 4; ++i) fixture.Submit(Idle(10 + i, 900));
  fixture.RunAll();
  EXPECT_GT(fixture.engine().stats().rows_idle, 0u);
  EXPECT_GE(fixture.Ask(pinned).completion.report.used_tokens, 499);
}

// What has not begun holds nothing, so ending it would help nobody.
TEST_F(IdleWorkTest, IsNotEndedForMemoryItDoesNotHold) {
  EngineFixture& fixture = Blocks(16);
  auto first = fixture.Submit(Idle(1, 600));
  auto second = fixture.Submit(Idle(2, 300));
  for (int i = 0; i < 5; ++i) fixture.engine().Step();
  fixture.Ask(Ask(3, 900, 20));  // needs what the first one holds
  EXPECT_EQ(EngineFixture::Read(*first).completion.reason, FinishReason::kCancelled);
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*second).completion.reason, FinishReason::kLength);
}

TEST_F(IdleWorkTest, OfOneTenantDoesNotPushOutThatOfOthers) {
  engine_options_.idle_max = 4;
  EngineFixture& fixture = Make();
  GenerateRequest quiet = Idle(1, 50);
  quiet.tenant = "quiet";
  auto kept = fixture.Submit(quiet);
  for (uint64_t i = 0; i < 10; ++i) {
    GenerateRequest loud = Idle(10 + i, 50);
    loud.tenant = "loud";
    fixture.Submit(loud);
  }
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*kept).completion.reason, FinishReason::kLength);
}

}  // namespace
}  // namespace reprise
