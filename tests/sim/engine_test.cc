// SPDX-License-Identifier: Apache-2.0
// What the loop promises: bounded queues, cancellation between steps, streams that keep moving
// beside a long prompt, one computation for many equal prefixes, idle work that yields, errors that
// stay alone.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "device/disguised_memory.h"
#include "device/scarce_memory.h"
#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

class EngineTest : public testing::Test {
 protected:
  Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

  FakeExecutor executor_{FakeExecutor::Kind::kHybrid};
  CacheOptions cache_options_;
  EngineOptions engine_options_;
};

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  cache_options_.context_tokens = 100;
  EngineFixture fixture(executor_, cache_options_);
  const auto code = [&](const GenerateRequest& request) {
    return fixture.engine().Submit(request).status().code();
  };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Talk().Say(1, 100).Request(1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Talk().Say(1, 100).Request(0)), StatusCode::kOk);
  GenerateRequest request = Talk().Say(1, 10).Request(1);
  request.prompt[3] = FakeExecutor::kVocab;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request.prompt[3] = -1;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
  request.prompt[3] = 0;
  request.sampling.top_p = 7;
  EXPECT_EQ(code(request), StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, BoundsTheQueue) {
  engine_options_.waiting_max = 3;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  for (uint64_t i = 0; i < 3; ++i) fixture.Submit(Talk().Say(i, 10).Request(1));
  EXPECT_EQ(fixture.engine().Submit(Talk().Say(9, 10).Request(1)).status().code(),
            StatusCode::kResourceExhausted);
  fixture.RunAll();
  EXPECT_TRUE(fixture.engine().Submit(Talk().Say(9, 10).Request(1)).ok());
  fixture.RunAll();
  EXPECT_EQ(fixture.engine().stats().requests_refused, 1u);
}

TEST_F(EngineTest, EndsAtEndTokensAndLimits) {
  EngineFixture fixture(executor_);
  const auto whole = fixture.Ask(Talk().Say(1, 50).Request(20));
  ASSERT_EQ(whole.tokens.size(), 20u);
  EXPECT_EQ(whole.completion.reason, FinishReason::kLength);

  GenerateRequest request = Talk().Say(1, 50).Request(20);
  request.end_tokens = {whole.tokens[5]};
  const auto cut = fixture.Ask(request);
  EXPECT_EQ(cut.completion.reason, FinishReason::kEndToken);
  EXPECT_LE(cut.tokens.size(), 5u);
  request.min_tokens = 20;
  EXPECT_EQ(fixture.Ask(request).tokens.size(), 20u);
}

TEST_F(EngineTest, TheContextEndsAReply) {
  cache_options_.context_tokens = 64;
  EngineFixture fixture(executor_, cache_options_);
  const auto answer = fixture.Ask(Talk().Say(1, 60).Request(100));
  EXPECT_EQ(answer.completion.reason, FinishReason::kLength);
  EXPECT_EQ(answer.tokens.size(), 4u);
}

// The engine looks for what was cancelled only when something was; here that happens when it has
// just emptied its inbox: it refuses idle work that it found there.
TEST_F(EngineTest, WhoIsCancelledBehindTheInboxIsNoticedInTheNextStep) {
  EngineOptions options;
  options.idle_work = false;
  EngineFixture fixture(executor_, cache_options_, options);
  GenerateRequest idle = Talk().Say(2, 10).Request(0);
  idle.idle = true;
  std::shared_ptr<TokenStream> stream;
  fixture.Submit(idle)->SetNotify([&] {
    stream = fixture.Submit(Talk().Say(1, 300).Request(500));
    stream->Cancel();
  });
  fixture.engine().Step();
  fixture.engine().Step();
  const auto answer = EngineFixture::Read(*stream);
  EXPECT_EQ(answer.completion.reason, FinishReason::kCancelled);
  EXPECT_EQ(answer.completion.steps, 0);
}

TEST_F(EngineTest, CancellingFreesEverythingAndKeepsTheState) {
  EngineFixture fixture(executor_);
  auto stream = fixture.Submit(Talk().Say(1, 300).Request(500));
  for (int i = 0; i < 10; ++i) fixture.engine().Step();
  stream->Cancel();
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kCancelled);
  EXPECT_EQ(fixture.cache().stats().leases, 0u);
  EXPECT_EQ(fixture.cache().stats().bytes_leased, 0u);
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

TEST_F(EngineTest, StreamsKeepMovingBesideALongPrompt) {
  cache_options_.context_tokens = 20000;
  engine_options_.scheduler.rows_max = 256;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  auto stream = fixture.Submit(Talk().Say(1, 20).Request(100));
  fixture.engine().Step();
  auto prompt = fixture.Submit(Talk().Say(2, 15000).Request(1));
  // A token in every step from now on, until the stream ends.
  for (size_t tokens = 1; tokens < 100; ++tokens) {
    ASSERT_EQ(stream->Poll().tokens.size(), 1u) << "before token " << tokens;
    ASSERT_TRUE(fixture.engine().Step());
  }
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*prompt).completion.reason, FinishReason::kLength);
}

TEST_F(EngineTest, EqualPrefixesAreComputedOnce) {
  cache_options_.sequence_count = 8;
  EngineFixture fixture(executor_, cache_options_);
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (uint64_t i = 0; i < 100; ++i) {
    streams.push_back(fixture.Submit(Talk().Say(7, 1000).Say(100 + i, 10).Request(1)));
  }
  fixture.RunAll();
  for (const auto& stream : streams) {
    EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kLength);
  }
  // 1000 + 100 x 10, and a few rows where requests part in the middle of a step.
  EXPECT_LE(executor_.rows(), 1000u + 100u * 12u);
}

// The same with a thread for each request and one for the engine; memory stays within the budget.
TEST_F(EngineTest, AHundredConcurrentRequestsComputeTheirPrefixOnceWithinTheBudget) {
  cache_options_.sequence_count = 8;
  cache_options_.budget_bytes = LeastBudget(executor_.card().state, cache_options_) * 2;
  auto cache = StateCache::Create(executor_.card().state, cache_options_);
  ASSERT_TRUE(cache.ok());
  const SteadyClock clock;
  Engine engine(executor_, std::move(*cache), {}, clock);
  engine.Start();
  std::atomic<int> finished{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 100; ++i) {
    threads.emplace_back([&, i] {
      auto stream = engine.Submit(Talk().Say(7, 1000).Say(100 + i, 10).Request(1));
      if (!stream.ok()) return;
      const auto update = (*stream)->WaitForAll();
      if (update.completion->reason == FinishReason::kLength) ++finished;
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine.Stop();
  EXPECT_EQ(finished, 100);
  EXPECT_LE(executor_.rows(), 1000u + 100u * 12u);
  const CacheStats stats = engine.cache().stats();
  EXPECT_LE(stats.bytes_used_max, stats.bytes_budget * 103 / 100);
}

// The weights of a model may go when nobody needs them: what runs and waits is answered first, idle
// work ends, and from then on the model is not touched. Requests that come wait for its return, and
// start from the state that stayed.
TEST_F(EngineTest, AnEngineSleepsWhenNothingRunsAndKeepsItsState) {
  engine_options_.running_max = 1;  // the second request waits until the first has ended
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  const GenerateRequest prompt = Talk().Say(1, 300).Request(20);
  auto first = fixture.Submit(prompt);
  fixture.engine().Step();
  bool asleep = false;
  fixture.engine().Sleep([&] { asleep = true; });
  auto waiting = fixture.Submit(Talk().Say(2, 300).Request(5));
  fixture.engine().Step();
  EXPECT_FALSE(asleep) << "somebody runs";
  GenerateRequest ahead = Talk().Say(1, 300).Say(9, 50).Request(0);
  ahead.idle = true;
  auto idle = fixture.Submit(ahead);
  fixture.RunAll();
  EXPECT_TRUE(asleep);
  EXPECT_EQ(EngineFixture::Read(*first).completion.reason, FinishReason::kLength);
  EXPECT_EQ(EngineFixture::Read(*waiting).completion.reason, FinishReason::kLength);

  const uint64_t rows = executor_.rows();
  auto later = fixture.Submit(prompt);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(fixture.engine().Step());
  EXPECT_EQ(executor_.rows(), rows) << "the model was touched while it slept";
  bool awake = false;
  fixture.engine().Wake([&] { awake = true; });
  fixture.RunAll();
  EXPECT_TRUE(awake);
  const auto answer = EngineFixture::Read(*later);
  EXPECT_EQ(answer.completion.reason, FinishReason::kLength);
  EXPECT_GE(answer.completion.report.used_tokens, 299) << "the state stayed";
}

// Whoever asks a model to sleep may think better of it: nothing is said then, and all goes on.
TEST_F(EngineTest, AWakeCallsOffASleepThatHasNotBegun) {
  EngineFixture fixture(executor_);
  auto stream = fixture.Submit(Talk().Say(1, 300).Request(20));
  fixture.engine().Step();
  bool asleep = false;
  fixture.engine().Sleep([&] { asleep = true; });
  fixture.engine().Step();
  fixture.engine().Wake([] {});
  fixture.RunAll();
  EXPECT_FALSE(asleep);
  EXPECT_EQ(EngineFixture::Read(*stream).completion.reason, FinishReason::kLength);
  EXPECT_EQ(fixture.Ask(Talk().Say(3, 30).Request(2)).completion.reason, FinishReason::kLength);
}

// Counts what the thread that made it copies itself.
class CountingMemory : public DisguisedMemory {
 public:
  bool copies_by_caller() const override { return true; }
  void Copy(DevicePtr<std::byte> to, DevicePtr<const std::byte> from, size_t bytes) override {
    Count(bytes);
    DisguisedMemory::Copy(to, from, bytes);
  }
  void Zero(DevicePtr<std::byte> to, size_t bytes) override {
    Count(bytes);
    DisguisedMemory::Zero(to, bytes);
  }
  size_t by_caller() const { return by_caller_; }
  size_t beside() const { return beside_; }

 private:
  void Count(size_t bytes) {
    (std::this_thread::get_id() == caller_ ? by_caller_ : beside_) += bytes;
  }
  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<size_t> by_caller_ = 0, beside_ = 0;
};

// A state of any size is restored, cleared and kept without a copy by the thread that runs the
// steps; the answers are those of small states.
TEST_F(EngineTest, NoStepCopiesMoreBecauseAStateIsLarge) {
  std::vector<EngineFixture::Answer> wanted;
  size_t copied = 0;
  for (const int64_t words : {1 << 10, 1 << 20, 1 << 22}) {
    CountingMemory memory;
    FakeExecutor executor(FakeExecutor::Kind::kHybrid, 4096, words);
    executor.set_memory(&memory);
    cache_options_.budget_bytes = size_t{1} << 30;
    EngineFixture fixture(executor, cache_options_);
    std::vector<EngineFixture::Answer> answers;
    Conversation talk = Talk().Say(1, 500);
    for (uint64_t turn = 0; turn < 3; ++turn) {
      auto other = fixture.Submit(Talk().Say(10 + turn, 200).Request(5));
      auto again = fixture.Submit(talk.Request(5));
      auto cancelled = fixture.Submit(talk.Request(5));
      fixture.engine().Step();
      cancelled->Cancel();
      fixture.RunAll();
      answers.push_back(EngineFixture::Read(*other));
      answers.push_back(EngineFixture::Read(*again));
      talk.Append(answers.back().tokens).Say(20 + turn, 40);
      ASSERT_TRUE(fixture.cache().CheckInvariants().ok());
    }
    const size_t state_bytes = executor.card().state.state_bytes();
    if (wanted.empty()) {
      wanted = answers;
      continue;
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, wanted[i].tokens) << words << " words, answer " << i;
    }
    EXPECT_GE(answers.back().completion.report.used_tokens, 540) << "restored";
    EXPECT_GT(memory.beside(), 4 * state_bytes);
    EXPECT_LT(memory.by_caller(), state_bytes / 8) << "blocks that were continued in";
    if (copied > 0) {
      EXPECT_EQ(memory.by_caller(), copied) << "whatever the size of a state";
    }
    copied = memory.by_caller();
  }
}

// A device with less memory than the budget says: requests that fit run, one after another if need
// be, and the one that can never fit ends with a sentence; nobody else notices.
TEST_F(EngineTest, MemoryThatTheDeviceDoesNotHaveEndsOneRequest) {
  const auto answer = [&](DeviceMemory& memory, std::vector<EngineFixture::Answer>* answers) {
    FakeExecutor executor(FakeExecutor::Kind::kHybrid);
    executor.set_memory(&memory);
    EngineFixture fixture(executor, cache_options_);
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (uint64_t i = 0; i < 12; ++i) {
      streams.push_back(fixture.Submit(Talk().Say(i, i == 5 ? 3900 : 200).Request(20)));
    }
    fixture.RunAll();
    for (const auto& stream : streams) answers->push_back(EngineFixture::Read(*stream));
    EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
  };
  std::vector<EngineFixture::Answer> plenty, scarce;
  answer(HostMemory(), &plenty);
  ScarceMemory memory(executor_.card().state.kv_block_bytes() * 12 + (1 << 20));
  answer(memory, &scarce);
  for (size_t i = 0; i < plenty.size(); ++i) {
    if (i == 5) continue;
    EXPECT_EQ(scarce[i].completion.reason, FinishReason::kLength) << i;
    EXPECT_EQ(scarce[i].tokens, plenty[i].tokens) << i;
  }
  EXPECT_EQ(scarce[5].completion.reason, FinishReason::kFailed);
  EXPECT_NE(scarce[5].completion.status.message().find("the device has no more"),
            std::string::npos);
}

// Two long replies that do not fit together: each must end, one after the other.
TEST_F(EngineTest, SequencesThatDoNotFitTogetherEndOneByOne) {
  FakeExecutor executor(FakeExecutor::Kind::kAttention);
  const StateSpec& spec = executor.card().state;
  cache_options_.context_tokens = 1024;
  cache_options_.budget_bytes = 24 * spec.kv_block_bytes() + (size_t{64} << 10);
  EngineFixture fixture(executor, cache_options_);
  auto first = fixture.Submit(Talk().Say(1, 100).Request(800));
  auto second = fixture.Submit(Talk().Say(2, 100).Request(800));
  fixture.RunAll();
  EXPECT_EQ(EngineFixture::Read(*first).tokens.size(), 800u);
  const auto answer = EngineFixture::Read(*second);
  EXPECT_EQ(answer.tokens.size(), 800u);
  EXPECT_GT(answer.completion.preemptions, 0);
}

// What is said to be stored is where the next request starts, whatever the kind of state, and what
// could not be stored is not said to be.
TEST_F(EngineTest, ReportsWhatWasStored) {
  for (const auto kind : {FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kRecurrent,
                          FakeExecutor::Kind::kHybrid}) {
    FakeExecutor executor(kind);
    EngineFixture fixture(executor);
    const bool snapshots = kind != FakeExecutor::Kind::kAttention;
    const auto stored = [&](const Conversation& talk, int32_t max_tokens) {
      const auto answer = fixture.Ask(talk.Request(max_tokens));
      Conversation next = talk;
      next.Append(answer.tokens).Say(99, 3);
      GenerateRequest probe = next.Request(0);
      probe.cache_write = false;
      const ReuseReport seen = fixture.Ask(probe).completion.report;
      EXPECT_EQ(seen.used_tokens, answer.completion.report.stored_tokens);
      EXPECT_EQ(seen.stored_tokens, seen.used_tokens) << "it must not write";
      EXPECT_EQ(seen.snapshots_taken, 0);
      return answer.completion.report.stored_tokens;
    };
    EXPECT_EQ(stored(Talk().Say(1, 20), 4), snapshots ? 0 : 23) << "too short for a snapshot";
    EXPECT_EQ(stored(Talk().Say(2, 300), 1), snapshots ? 299 : 300);
    EXPECT_EQ(stored(Talk().Say(3, 300), 101), 400) << "the end of the reply";
    const auto again = fixture.Ask(Talk().Say(3, 300).Request(0)).completion.report;
    EXPECT_EQ(again.stored_tokens, snapshots ? 299 : 300);
  }
}

TEST_F(EngineTest, IdleWorkYieldsWithinAStep) {
  engine_options_.scheduler.idle_rows_max = 32;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  GenerateRequest idle = Talk().Say(3, 2000).Request(0);
  idle.idle = true;
  auto idle_stream = fixture.Submit(idle);
  for (int i = 0; i < 5; ++i) fixture.engine().Step();
  const uint64_t before = executor_.rows();
  EXPECT_EQ(before, 1u + 4u * 32u) << "a row tells how long one takes";
  auto real = fixture.Submit(Talk().Say(4, 100).Request(1));
  fixture.engine().Step();
  EXPECT_EQ(EngineFixture::Read(*real).tokens.size(), 1u);
  EXPECT_EQ(executor_.rows(), before + 100);
  fixture.RunAll();
  // The idle work was finished afterwards, and the turn it was for starts from it.
  EXPECT_EQ(EngineFixture::Read(*idle_stream).completion.reason, FinishReason::kLength);
  EXPECT_LE(fixture.Ask(Talk().Say(3, 2000).Say(5, 10).Request(1)).computed(), 12);
}

TEST_F(EngineTest, IdleWorkCanBeSwitchedOff) {
  engine_options_.idle_work = false;
  EngineFixture fixture(executor_, cache_options_, engine_options_);
  GenerateRequest idle = Talk().Say(3, 2000).Request(0);
  idle.idle = true;
  fixture.Submit(idle);
  fixture.RunAll();
  EXPECT_EQ(executor_.rows(), 0u);
}

TEST_F(EngineTest, AStateThatIsNotFiniteFailsAloneAndIsNeverKept) {
  EngineFixture fixture(executor_);
  GenerateRequest bad = Talk().Say(1, 200).Request(5);
  bad.prompt[150] = 3;
  executor_.PoisonToken(3);
  for (TokenId& token : bad.prompt) {
    if (&token != &bad.prompt[150] && token == 3) token = 4;
  }
  const auto failed = fixture.Ask(bad);
  EXPECT_EQ(failed.completion.reason, FinishReason::kFailed);
  EXPECT_EQ(failed.completion.status.code(), StatusCode::kInternal);
  EXPECT_FALSE(failed.completion.status.message().empty());
  executor_.PoisonToken(-1);
  const auto again = fixture.Ask(bad);
  EXPECT_EQ(again.completion.reason, FinishReason::kLength);
  EXPECT_LE(again.completion.report.used_tokens, 150);
  std::vector<float> cold((bad.prompt.size()) * FakeExecutor::kVocab);
  executor_.ColdLogits(0, bad.prompt, cold.data());
  const float* last = cold.data() + (bad.prompt.size() - 1) * FakeExecutor::kVocab;
  EXPECT_EQ(again.tokens[0], std::max_element(last, last + FakeExecutor::kVocab) - last);
}

TEST_F(EngineTest, ThreadedCallersGetTheirAnswers) {
  SteadyClock clock;
  cache_options_.budget_bytes = size_t{64} << 20;
  auto cache = StateCache::Create(executor_.card().state, cache_options_);
  ASSERT_TRUE(cache.ok());
  engine_options_.context_tokens = cache_options_.context_tokens;
  Engine engine(executor_, std::move(*cache), engine_options_, clock);
  engine.Start();
  std::vector<std::thread> callers;
  std::atomic<int> finished{0};
  for (uint64_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint64_t i = 0; i < 25; ++i) {
        auto stream = engine.Submit(Talk().Say(1, 200).Say(caller * 100 + i, 20).Request(10));
        ASSERT_TRUE(stream.ok());
        if (i % 5 == 4) (*stream)->Cancel();
        const auto update = (*stream)->WaitForAll();
        ASSERT_TRUE(update.completion.has_value());
        if (update.completion->reason == FinishReason::kLength) ++finished;
        engine.stats();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_GE(finished, 80);
  engine.Stop();
  EXPECT_TRUE(engine.cache().CheckInvariants().ok());
  EXPECT_EQ(engine.cache().stats().leases, 0u);
}

}  // namespace
}  // namespace reprise
