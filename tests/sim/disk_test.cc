// SPDX-License-Identifier: Apache-2.0
// The engine with a disk under its memory: who waits for the disk holds up nobody, and a restart
// goes on where it was, with the tokens of a cold run.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "cache/tier/record_tier.h"
#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

DiskOptions FreshDisk(const std::string& name) {
  DiskOptions options;
  options.path = testing::TempDir() + name;
  options.bytes_max = 256 << 20;
  std::filesystem::remove_all(options.path);
  return options;
}

Status Attach(StateCache& cache, const DiskOptions& options) {
  REPRISE_ASSIGN(std::unique_ptr<RecordStore> store, RecordStore::Open(options, StateKey()));
  cache.AttachTier(std::make_unique<RecordTier>(std::move(store)));
  return OkStatus();
}

Conversation Talk() { return Conversation(FakeExecutor::kVocab); }

// Steps, and waits for the disk between them, until the stream has ended.
EngineFixture::Answer Finish(EngineFixture& fixture, TokenStream& stream) {
  EngineFixture::Answer answer;
  for (int step = 0; step < 100000; ++step) {
    (void)fixture.engine().Step();
    if (fixture.engine().roster().running().empty()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    TokenStream::Update update = stream.Poll();
    for (const GeneratedToken& token : update.tokens) answer.tokens.push_back(token.chosen.token);
    if (!update.completion) continue;
    answer.completion = *update.completion;
    return answer;
  }
  ADD_FAILURE() << "the request never ends";
  return answer;
}

// What a process does that is told to end.
void End(EngineFixture& fixture) {
  fixture.engine().Stop();
  EXPECT_TRUE(fixture.engine().StoreState(std::chrono::seconds(60)));
}

TEST(EngineDisk, ARestartGoesOnWhereItWas) {
  for (const auto kind : {FakeExecutor::Kind::kHybrid, FakeExecutor::Kind::kAttention,
                          FakeExecutor::Kind::kRecurrent}) {
    FakeExecutor executor(kind);
    const DiskOptions disk = FreshDisk("engine_restart");
    Conversation chat = Talk().Say(1, 600).Say(2, 50);
    {
      EngineFixture first(executor);
      ASSERT_TRUE(Attach(first.cache(), disk).ok());
      chat.Append(Finish(first, *first.Submit(chat.Request(40))).tokens).Say(3, 30);
      End(first);
    }
    EngineFixture second(executor);
    ASSERT_TRUE(Attach(second.cache(), disk).ok());
    const auto answer = Finish(second, *second.Submit(chat.Request(20)));
    EXPECT_LE(answer.computed(), 30 + 64);
    EXPECT_GT(answer.completion.report.loaded_tokens, 500);
    EngineFixture cold(executor);
    EXPECT_EQ(cold.Ask(chat.Request(20)).tokens, answer.tokens);
  }
}

// A gate that reads wait at until it is opened.
class Gate {
 public:
  void Open() {
    {
      std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  int Pass(const char* call) {
    if (std::strcmp(call, "read") != 0) return 0;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(EngineDisk, WhoWaitsForTheDiskHoldsUpNobody) {
  FakeExecutor executor(FakeExecutor::Kind::kHybrid);
  DiskOptions disk = FreshDisk("engine_gate");
  const Conversation stored = Talk().Say(1, 600).Say(2, 50);
  {
    EngineFixture first(executor);
    ASSERT_TRUE(Attach(first.cache(), disk).ok());
    (void)Finish(first, *first.Submit(stored.Request(10)));
    End(first);
  }
  Gate gate;
  disk.fault = [&](const char* call) { return gate.Pass(call); };
  EngineFixture second(executor);
  ASSERT_TRUE(Attach(second.cache(), disk).ok());
  const auto waits = second.Submit(Conversation(stored).Say(3, 20).Request(10));
  const auto runs = second.Submit(Talk().Say(9, 100).Request(10));
  EXPECT_EQ(Finish(second, *runs).completion.reason, FinishReason::kLength);
  EXPECT_FALSE(waits->Poll().completion) << "its state is still on its way";
  gate.Open();
  const auto late = Finish(second, *waits);
  EXPECT_EQ(late.completion.reason, FinishReason::kLength);
  EXPECT_LE(late.computed(), 20 + 64);
  EXPECT_GT(late.completion.report.loaded_tokens, 500);
  EXPECT_TRUE(second.cache().CheckInvariants().ok());
}

}  // namespace
}  // namespace reprise
