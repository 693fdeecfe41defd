// SPDX-License-Identifier: Apache-2.0
// Proves that only those begin as heavy who send little else, and that what is known is bounded.
#include "http/shares/past_sizes.h"

#include <gtest/gtest.h>

#include <string>

namespace reprise::http {
namespace {

constexpr int kRoute = 0, kOther = 0;

TEST(PastSizes, WhoSendsHeavyRequestsBeginsThemAsSuch) {
  PastSizes past;
  for (int i = 0; i < PastSizes::kHeavyAt; ++i) {
    EXPECT_FALSE(past.BeginsHeavy("a", &kRoute)) << i;
    past.Note("a", &kRoute, true);
  }
  EXPECT_TRUE(past.BeginsHeavy("a", &kRoute));
  EXPECT_FALSE(past.BeginsHeavy("b", &kRoute));
  EXPECT_FALSE(past.BeginsHeavy("a", &kOther)) << "another route";
  for (int i = 0; i < 100; ++i) past.Note("a", &kRoute, true);
  past.Note("a", &kRoute, false);
  past.Note("a", &kRoute, false);
  EXPECT_FALSE(past.BeginsHeavy("a", &kRoute)) << "two small ones are enough";
  EXPECT_TRUE(past.Knows("a", &kRoute));
  past.Note("a", &kRoute, false);
  past.Note("a", &kRoute, false);
  EXPECT_FALSE(past.Knows("a", &kRoute));
  EXPECT_EQ(past.size(), 0u);
}

TEST(PastSizes, WhoSendsBothBeginsSmall) {
  PastSizes past;
  for (int i = 0; i < 100; ++i) {
    past.Note("a", &kRoute, true);
    past.Note("a", &kRoute, i % 2 == 0);
    past.Note("a", &kRoute, false);
    EXPECT_FALSE(past.BeginsHeavy("a", &kRoute)) << i;
  }
}

TEST(PastSizes, WhatIsKnownIsBounded) {
  PastSizes past;
  for (size_t i = 0; i < 3 * PastSizes::kKnownMax; ++i) {
    past.Note(std::to_string(i), &kRoute, true);
    ASSERT_LE(past.size(), PastSizes::kKnownMax);
  }
}

}  // namespace
}  // namespace reprise::http
