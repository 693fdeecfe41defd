// SPDX-License-Identifier: Apache-2.0
// The reuse scenarios of daily life on a hybrid model, each with the number of tokens that may be
// computed again: the new ones, plus at most 64.
#include <gtest/gtest.h>

#include "engine_fixture.h"
#include "fake_executor.h"

namespace reprise {
namespace {

constexpr int32_t kSlack = 64;

class ReuseTest : public testing::Test {
 protected:
  ReuseTest() : fixture_(executor_) {}

  Conversation Talk() { return Conversation(FakeExecutor::kVocab); }
  EngineFixture::Answer Ask(const Conversation& conversation, int32_t max_tokens = 20) {
    return fixture_.Ask(conversation.Request(max_tokens));
  }

  FakeExecutor executor_{FakeExecutor::Kind::kHybrid};
  EngineFixture fixture_;
};

TEST_F(ReuseTest, SecondTurn) {
  Conversation chat = Talk().Say(1, 200).Say(2, 50);
  const auto first = Ask(chat);
  chat.Append(first.tokens).Say(3, 30);
  const auto second = Ask(chat);
  EXPECT_LE(second.computed(), 30 + kSlack);
}

TEST_F(ReuseTest, ThinkingStrippedFromThePreviousReply) {
  Conversation chat = Talk().Say(1, 200).Say(2, 50);
  const auto first = Ask(chat, 100);
  // History keeps only the last 30 tokens of the reply: the rest was thinking.
  const std::vector<TokenId> visible(first.tokens.end() - 30, first.tokens.end());
  chat.Append(visible).Say(3, 25);
  EXPECT_LE(Ask(chat).computed(), 30 + 25 + kSlack);
}

TEST_F(ReuseTest, ThinkingStrippedAndPrefilledInIdleTime) {
  Conversation chat = Talk().Say(1, 200).Say(2, 50);
  const auto first = Ask(chat, 100);
  chat.Append({first.tokens.end() - 30, first.tokens.end()});
  GenerateRequest next_turn = chat.Request(0);
  next_turn.idle = true;
  fixture_.Submit(next_turn);
  fixture_.RunAll();
  chat.Say(3, 25);
  EXPECT_LE(Ask(chat).computed(), 25 + kSlack);
}

TEST_F(ReuseTest, ToolLoopOfFiveCalls) {
  Conversation chat = Talk().Say(1, 300).Say(2, 40);
  auto answer = Ask(chat);
  for (uint64_t call = 0; call < 5; ++call) {
    chat.Append(answer.tokens).Say(10 + call, 60);
    answer = Ask(chat);
    EXPECT_LE(answer.computed(), 60 + kSlack) << "call " << call;
  }
}

TEST_F(ReuseTest, NewConversationWithTheSameSystemPromptHitsTheSecondTime) {
  Ask(Talk().Say(1, 1000).Say(2, 50));
  const auto second = Ask(Talk().Say(1, 1000).Say(3, 40));
  EXPECT_LE(second.computed(), 40);
}

TEST_F(ReuseTest, EditedMessageReusesUpToTheMessageBefore) {
  Ask(Talk().Say(1, 200).Say(2, 100).Say(3, 100).Say(4, 100));
  const auto edited = Ask(Talk().Say(1, 200).Say(2, 100).Say(33, 80).Say(4, 100));
  EXPECT_LE(edited.computed(), 180);
}

TEST_F(ReuseTest, Regenerate) {
  const Conversation chat = Talk().Say(1, 200).Say(2, 50);
  Ask(chat);
  EXPECT_LE(Ask(chat).computed(), 1);
}

TEST_F(ReuseTest, TwoConversationsAlternating) {
  Conversation chats[2] = {Talk().Say(1, 200).Say(2, 50), Talk().Say(5, 200).Say(6, 50)};
  for (auto& chat : chats) chat.Append(Ask(chat).tokens);
  for (uint64_t turn = 0; turn < 4; ++turn) {
    for (auto& chat : chats) {
      chat.Say(50 + turn, 30);
      const auto answer = Ask(chat);
      EXPECT_LE(answer.computed(), 30 + kSlack) << "turn " << turn;
      chat.Append(answer.tokens);
    }
  }
}

TEST_F(ReuseTest, SixteenConversationsUnderABudgetThatHoldsHalf) {
  FakeExecutor executor(FakeExecutor::Kind::kHybrid);
  const StateSpec& spec = executor.card().state;
  CacheOptions options;
  options.context_tokens = 2048;
  options.sequence_count = 1;
  // A conversation adds about 160 tokens and three snapshots to the shared 1,000-token system
  // prompt.
  const size_t each = 3 * spec.kv_block_bytes() + 3 * spec.state_bytes() + 2048;
  options.budget_bytes =
      48 * spec.kv_block_bytes() + 4 * spec.state_bytes() + 8 * each + (size_t{128} << 10);
  EngineFixture fixture(executor, options);
  std::vector<Conversation> chats;
  for (uint64_t i = 0; i < 16; ++i) chats.push_back(Talk().Say(1, 1000).Say(100 + i, 100));
  for (auto& chat : chats) chat.Append(fixture.Ask(chat.Request(20)).tokens);
  for (auto& chat : chats) {
    chat.Say(7, 40);
    const auto answer = fixture.Ask(chat.Request(20));
    // The system prompt is never computed again, whatever else had to go.
    EXPECT_LE(answer.computed(), chat.size() - 1000 + kSlack);
  }
  EXPECT_TRUE(fixture.cache().CheckInvariants().ok());
}

TEST_F(ReuseTest, StopInMidGenerationAndContinue) {
  Conversation chat = Talk().Say(1, 200).Say(2, 50);
  auto stream = fixture_.Submit(chat.Request(500));
  for (int step = 0; step < 40; ++step) fixture_.engine().Step();
  stream->Cancel();
  fixture_.RunAll();
  const auto stopped = EngineFixture::Read(*stream);
  ASSERT_GT(stopped.tokens.size(), 20u);
  chat.Append(stopped.tokens).Say(3, 20);
  EXPECT_LE(Ask(chat).computed(), 20 + kSlack);
}

TEST_F(ReuseTest, IdenticalPromptTwice) {
  const Conversation chat = Talk().Say(1, 777);
  const auto first = Ask(chat);
  const auto second = Ask(chat);
  EXPECT_LE(second.computed(), 1);
  EXPECT_EQ(first.tokens, second.tokens);
}

TEST_F(ReuseTest, OtherTenantsShareNothing) {
  GenerateRequest request = Talk().Say(1, 500).Request(5);
  fixture_.Ask(request);
  request.salt = "other";
  const auto answer = fixture_.Ask(request);
  EXPECT_EQ(answer.completion.report.used_tokens, 0);
  EXPECT_EQ(answer.completion.report.reason, MissReason::kCold);
}

}  // namespace
}  // namespace reprise
