// SPDX-License-Identifier: Apache-2.0
#include "api/chat/long_reply.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace reprise::api {
namespace {

using Finding = LongReply::Finding;

// The lengths at which `what` is found.
std::vector<int64_t> Found(Finding what, int64_t tokens, int64_t period) {
  LongReply reply;
  Rng rng(1);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < tokens; ++i) {
    const auto token = static_cast<int32_t>(period > 0 ? i % period : int64_t(rng.Below(50000)));
    if (reply.Add(token) == what) at.push_back(reply.tokens());
  }
  return at;
}

TEST(LongReplyTest, ALoopIsFoundSoonAndNamedOncePerDoubling) {
  for (const int64_t period : {1, 7, 100, 128}) {
    EXPECT_EQ(Found(Finding::kLoop, 5000, period), (std::vector<int64_t>{512, 1024, 2048, 4096}));
  }
  EXPECT_TRUE(Found(Finding::kLoop, 5000, 200).empty());
}

TEST(LongReplyTest, AReplyThatGoesOnIsNamedByItsLength) {
  EXPECT_TRUE(Found(Finding::kLoop, 40000, 0).empty());
  EXPECT_EQ(Found(Finding::kLong, 40000, 0), (std::vector<int64_t>{8192, 16384, 32768}));
  EXPECT_TRUE(Found(Finding::kLong, 8000, 0).empty());
}

// A loop that begins late is found within its doubling.
TEST(LongReplyTest, ALoopBehindOrdinaryTextIsFound) {
  LongReply reply;
  Rng rng(2);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(reply.Add(int32_t(rng.Below(50000))), Finding::kNothing);
  int64_t found = 0;
  for (int i = 0; i < 1000 && found == 0; ++i) {
    if (reply.Add(i % 20) == Finding::kLoop) found = reply.tokens();
  }
  EXPECT_GT(found, 3000);
  EXPECT_LE(found, 3000 + 512 + 256);
}

}  // namespace
}  // namespace reprise::api
