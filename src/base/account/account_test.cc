// SPDX-License-Identifier: Apache-2.0
// Proves that what requests hold stays within its limits, of one share and of all, and is given
// back; and that spent work stays refused until the request begins again.
#include "base/account/account.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/rng.h"

namespace reprise {
namespace {

std::shared_ptr<Ledger> MakeLedger(size_t bytes, size_t share_bytes) {
  return std::make_shared<Ledger>(Ledger::Limits{bytes, share_bytes});
}

TEST(Ledger, HoldsNoMoreThanItsLimits) {
  const auto ledger = MakeLedger(100, 60);
  Holding a(ledger, "a");
  Holding also_a(ledger, "a");
  Holding b(ledger, "b");
  EXPECT_TRUE(a.Set(40));
  EXPECT_FALSE(also_a.Set(21)) << "the share has 60";
  EXPECT_TRUE(also_a.Set(20));
  EXPECT_FALSE(b.Set(41)) << "there are 100";
  EXPECT_TRUE(b.Set(40));
  EXPECT_EQ(ledger->bytes(), 100u);
  EXPECT_EQ(ledger->bytes_of("a"), 60u);
  EXPECT_TRUE(a.Set(39));
  EXPECT_TRUE(b.Set(41));
  EXPECT_EQ(ledger->bytes_most(), 100u);
  EXPECT_EQ(ledger->refusals(), 2u);
  EXPECT_FALSE(a.Set(~size_t{0})) << "sums do not wrap around";
}

TEST(Ledger, IsEmptyWhenAllHaveGone) {
  const auto ledger = MakeLedger(10'000, 3'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&ledger, i] {
      Rng rng(static_cast<uint64_t>(i));
      for (int round = 0; round < 500; ++round) {
        Holding holding(ledger, std::string(1, static_cast<char>('a' + rng.Below(3))));
        for (int step = 0; step < 5; ++step) {
          const size_t bytes = rng.Below(4'000);
          const size_t before = holding.bytes();
          EXPECT_EQ(holding.bytes(), holding.Set(bytes) ? bytes : before);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger->bytes(), 0u);
  EXPECT_EQ(ledger->bytes_of("a"), 0u);
  EXPECT_LE(ledger->bytes_most(), 9'000u);
}

TEST(Account, ReadingGoesWithTheHandlerAnswersWithTheAccount) {
  const auto ledger = MakeLedger(1'000, 1'000);
  {
    Account account(ledger, "a", {.bytes = 500});
    EXPECT_TRUE(account.TakeBody(300).ok());
    EXPECT_TRUE(account.TakeAnswer(100, "the prompt").ok());
    const Status own = account.TakeReading(101, "the parsed body");
    EXPECT_EQ(own.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(own.message().find("the parsed body"), std::string::npos);
    EXPECT_EQ(ledger->bytes(), 400u);
    account.EndReading();
    EXPECT_EQ(ledger->bytes(), 100u);
    Holding others(ledger, "b");
    EXPECT_TRUE(others.Set(700));
    const Status full = account.TakeAnswer(300, "choices");
    EXPECT_EQ(full.code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(ledger->bytes(), 0u);
}

TEST(Account, WhatWasRefusedStaysRefusedUntilItBeginsAgain) {
  Account account(MakeLedger(1'000, 1'000), "a", {.small_work = 100, .work = 1'000});
  EXPECT_TRUE(account.Spend(100, "reading").ok());
  EXPECT_FALSE(account.wants_more());
  EXPECT_FALSE(account.Spend(1, "compiling").ok());
  EXPECT_TRUE(account.wants_more());
  EXPECT_FALSE(account.Spend(0, "reading").ok());
  EXPECT_TRUE(account.TakeBody(5).ok());
  EXPECT_TRUE(account.TakeReading(10, "text").ok());
  EXPECT_TRUE(account.TakeAnswer(10, "choices").ok());
  account.Widen();
  EXPECT_FALSE(account.wants_more());
  EXPECT_EQ(account.bytes(), 5u) << "the body is still there";
  EXPECT_EQ(account.work_left(), 1'000u);
  EXPECT_TRUE(account.Spend(1'000, "compiling").ok());
  const Status spent = account.Spend(1, "tokenising");
  EXPECT_EQ(spent.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(spent.message().find("tokenising"), std::string::npos);
  EXPECT_FALSE(account.wants_more()) << "there is no more";
}

TEST(Account, EndsWithItsClient) {
  bool gone = false;
  Account account(MakeLedger(1'000, 1'000), "a", {});
  account.SetAbandoned([&gone] { return gone; });
  EXPECT_TRUE(account.Spend(1, "reading").ok());
  gone = true;
  EXPECT_EQ(account.Spend(1, "reading").code(), StatusCode::kCancelled);
  EXPECT_FALSE(account.wants_more());
  EXPECT_TRUE(Account().Spend(~uint64_t{0} >> 1, "idle work").ok());
}

}  // namespace
}  // namespace reprise
