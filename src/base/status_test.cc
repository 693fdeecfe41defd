// SPDX-License-Identifier: Apache-2.0
// Proves how errors travel: by value, with the place added on the way.
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace reprise {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  REPRISE_ASSIGN(const int half, Half(x));
  return Half(half);
}

Status OnlyEven(int x) {
  REPRISE_TRY(Half(x).status());
  return OkStatus();
}

TEST(Status, TravelsThroughTryAndAssign) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(OnlyEven(2).ok());
  EXPECT_EQ(OnlyEven(3).code(), StatusCode::kInvalidArgument);
}

TEST(Status, AnnotateNamesThePlace) {
  EXPECT_EQ(Half(3).status().Annotate("config.json").message(), "config.json: odd");
  EXPECT_TRUE(OkStatus().Annotate("x").ok());
}

TEST(Status, ResultHoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace reprise
