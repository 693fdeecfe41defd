// SPDX-License-Identifier: Apache-2.0
// Proves that what an agent asks beside its conversation does not push the conversation out: where
// the request says so, and where only the session tells.
#include <gtest/gtest.h>

#include <string>

#include "cache/index/index_fixture.h"
#include "cache/policy/sessions.h"

namespace reprise {
namespace {

enum class Says { kNothing, kSession, kLow };

// A conversation of twelve turns, in memory for it and a few others. After the third one there are
// a minute and a dozen one-shot requests between two of them. Returns the tokens that its turns
// reused from then on, of those that they could.
double Reused(const StateSpec& spec, Says says) {
  StateIndex::Options options;
  options.spec = spec;
  options.cache.context_tokens = 2048;
  options.cache.snapshot_gap = 16;
  options.cache.budget_bytes = LeastBudget(spec, options.cache) + (size_t{1} << 20);
  IndexClient client(std::move(options));
  CacheRequest main, side;
  if (says != Says::kNothing) main.session = side.session = "agent";
  if (says == Says::kLow) {
    main.session = side.session = {};
    side.low = true;
  }
  int64_t now_ms = 1;
  double reused = 0, could = 0;
  auto talk = RandomTokens(1, 600);
  for (uint64_t turn = 0; turn < 12; ++turn) {
    client.index.SetTime(now_ms += 2'000);
    const auto reply = RandomTokens(100 + turn, 40);
    const ReuseReport report = client.Run(talk, main, reply);
    if (turn > 3) {
      reused += report.used_tokens;
      could += static_cast<double>(talk.size()) - 60;
    }
    talk.insert(talk.end(), reply.begin(), reply.end());
    const auto more = RandomTokens(200 + turn, 60);
    talk.insert(talk.end(), more.begin(), more.end());
    for (uint64_t i = 0; turn >= 3 && i < 12; ++i) {
      client.index.SetTime(now_ms += 5'000);
      (void)client.Run(RandomTokens(1000 + turn * 100 + i, 500), side, RandomTokens(i, 10));
    }
    EXPECT_TRUE(client.index.CheckInvariants().ok()) << client.index.CheckInvariants().message();
  }
  return reused / could;
}

const StateSpec kSpecs[] = {SpecOfKinds(true, 0, false), SpecOfKinds(true, 0, true),
                            SpecOfKinds(false, 0, true)};

TEST(SideRequests, ThoseThatSaySoLeaveTheConversation) {
  for (const StateSpec& spec : kSpecs) {
    EXPECT_LT(Reused(spec, Says::kNothing), 0.6) << "there is room for all: nothing is shown";
    EXPECT_GT(Reused(spec, Says::kLow), 0.99);
  }
}

TEST(SideRequests, ASessionTellsWhichTheyAre) {
  for (const StateSpec& spec : kSpecs) EXPECT_GT(Reused(spec, Says::kSession), 0.9);
}

// What is come back to was no side request.
TEST(SideRequests, WhoeverComesBackMakesThemNormal) {
  for (const StateSpec& spec : kSpecs) {
    StateIndex::Options options;
    options.spec = spec;
    options.cache.context_tokens = 2048;
    options.cache.snapshot_gap = 16;
    options.cache.budget_bytes = LeastBudget(spec, options.cache) + (size_t{2} << 20);
    IndexClient client(std::move(options));
    CacheRequest low;
    low.low = true;
    auto agent = RandomTokens(1, 500);
    (void)client.Run(agent, low);
    const auto more = RandomTokens(2, 60);
    agent.insert(agent.end(), more.begin(), more.end());
    EXPECT_GE(client.Run(agent).used_tokens, 499);
    int64_t now_ms = 1;
    for (uint64_t i = 0; i < 30; ++i) {
      client.index.SetTime(now_ms += 10);
      (void)client.Run(RandomTokens(10 + i, 500), low);
    }
    EXPECT_GE(client.Reusable(agent), 559);
  }
}

TEST(Sessions, TakeWhatBeginsBesideAConversationForASideRequest) {
  Sessions sessions;
  const uint64_t one = Sessions::NameOf(1, 7, "s"), other = Sessions::NameOf(2, 7, "s");
  EXPECT_NE(one, other) << "a name is its tenant's";
  EXPECT_FALSE(sessions.Note(one, true, 0)) << "it may be the conversation";
  EXPECT_FALSE(sessions.Note(one, true, 1)) << "so may this";
  EXPECT_FALSE(sessions.Note(one, false, 2));
  EXPECT_TRUE(sessions.Note(one, true, 3));
  EXPECT_FALSE(sessions.Note(other, true, 3));
  EXPECT_FALSE(sessions.Note(0, true, 3)) << "of no session";
  EXPECT_FALSE(sessions.Note(one, true, 3 + Sessions::kRecentMs)) << "another day";
  for (uint64_t i = 0; i < 10'000; ++i) {
    (void)sessions.Note(Sessions::NameOf(3, 0, std::to_string(i)), true, 4);
  }
  EXPECT_EQ(sessions.size(), Sessions::kSessionsMax);
  EXPECT_FALSE(sessions.Note(one, true, 5)) << "forgotten";
}

}  // namespace
}  // namespace reprise
