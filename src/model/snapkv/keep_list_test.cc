// SPDX-License-Identifier: Apache-2.0
// Which rows are kept: those of the formula, found here the slow way.
#include "model/snapkv/keep_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace reprise {
namespace {

std::vector<int32_t> Choose(const std::vector<float>& weights, int32_t window, int32_t kept) {
  std::vector<int32_t> rows(static_cast<size_t>(kept), -1);
  ChooseKept(weights, window, rows);
  return rows;
}

TEST(KeepList, TakesTheHeaviestPlacesWithTheirNeighbours) {
  std::vector<float> weights(40, 0.01f);
  weights[20] = 1;
  // First 4, 17 to 23 around the heaviest, the window; then the first of equals.
  EXPECT_EQ(Choose(weights, 3, 14),
            (std::vector<int32_t>{0, 1, 2, 3, 17, 18, 19, 20, 21, 22, 23, 37, 38, 39}));
  EXPECT_EQ(Choose(weights, 3, 16),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 17, 18, 19, 20, 21, 22, 23, 37, 38, 39}));
}

TEST(KeepList, TheWindowLendsNothingToWhatIsBeforeIt) {
  std::vector<float> weights(30, 0.5f);
  weights[20] = 9;  // in the window
  weights[10] = 0.6f;
  EXPECT_EQ(Choose(weights, 10, 21),
            (std::vector<int32_t>{0,  1,  2,  3,  7,  8,  9,  10, 11, 12, 13,
                                  20, 21, 22, 23, 24, 25, 26, 27, 28, 29}));
}

TEST(KeepList, IsTheFormula) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const int32_t rows = 8 + int32_t(rng.Below(200));
    const int32_t window = 1 + int32_t(rng.Below(uint64_t(rows - kSinkTokens - 2)));
    const int32_t least = kSinkTokens + window;
    const int32_t kept = least + int32_t(rng.Below(uint64_t(rows - least)));
    std::vector<float> weights(static_cast<size_t>(rows));
    // Few values, so that there are many equals.
    for (float& w : weights) w = round % 3 == 0 ? float(rng.Below(4)) : rng.Uniform();
    std::vector<std::pair<float, int32_t>> worth;
    for (int32_t i = kSinkTokens; i < rows - window; ++i) {
      float most = 0;
      for (int32_t j = i - 3; j <= i + 3; ++j) {
        if (j >= 0 && j < rows - window) most = std::max(most, weights[size_t(j)]);
      }
      worth.emplace_back(-most, i);
    }
    std::sort(worth.begin(), worth.end());
    std::vector<int32_t> expected;
    for (int32_t i = 0; i < kSinkTokens; ++i) expected.push_back(i);
    for (int32_t i = 0; i < kept - least; ++i) expected.push_back(worth[size_t(i)].second);
    for (int32_t i = rows - window; i < rows; ++i) expected.push_back(i);
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(Choose(weights, window, kept), expected) << rows << " " << window << " " << kept;
  }
}

TEST(KeepList, WhatIsNotANumberWeighsNothing) {
  std::vector<float> weights(30, std::numeric_limits<float>::quiet_NaN());
  weights[20] = 0.25f;
  EXPECT_EQ(Choose(weights, 3, 14),
            (std::vector<int32_t>{0, 1, 2, 3, 17, 18, 19, 20, 21, 22, 23, 27, 28, 29}));
}

StateSpec Spec(int sliding) {
  StateSpec spec;
  spec.layers = {{0, StateKind::kFullKv, 0, {{"k", {1, 8}, DType::kF16}}}};
  if (sliding > 0) {
    spec.layers.push_back({1, StateKind::kWindowKv, sliding, {{"k", {1, 8}, DType::kF16}}});
  }
  return spec;
}

TEST(KeepList, TheBudgetIsTokensOrAShareAndNeverTooSmall) {
  EXPECT_EQ(KeptTokens(Spec(0), {.budget = 2048}, 16384), 2048);
  EXPECT_EQ(KeptTokens(Spec(0), {.share = 0.125}, 16384), 2048);
  EXPECT_EQ(KeptTokens(Spec(0), {.share = 0.3}, 1001), 301);
  EXPECT_EQ(KeptTokens(Spec(0), {.budget = 1}, 16384), kSinkTokens + 64);
  EXPECT_EQ(KeptTokens(Spec(0), {.budget = 1, .window = 8}, 16384), kSinkTokens + 8);
  EXPECT_EQ(KeptTokens(Spec(4096), {.budget = 2048}, 16384), 4096);
  // Short prompts stay whole.
  EXPECT_EQ(KeptTokens(Spec(0), {.budget = 2048}, 2048), 2048);
  EXPECT_EQ(KeptTokens(Spec(0), {.budget = 1}, 50), 50);
}

TEST(KeepList, RefusesByName) {
  StateSpec window = Spec(16);
  window.layers.erase(window.layers.begin());
  EXPECT_NE(CheckSnapKv(window, {.budget = 9}).message().find("full attention"), std::string::npos);
  EXPECT_TRUE(CheckSnapKv(Spec(16), {.budget = 9}).ok());
  EXPECT_TRUE(CheckSnapKv(Spec(0), {.share = 0.5}).ok());
  for (const SnapKv& wrong :
       {SnapKv{}, SnapKv{.budget = -1}, SnapKv{.share = 1.5}, SnapKv{.budget = 4, .share = 0.5}}) {
    EXPECT_NE(CheckSnapKv(Spec(0), wrong).message().find("snapkv.budget"), std::string::npos);
  }
  for (const int32_t wrong : {-1, 0, kSnapKvWindowMax + 1}) {
    const Status status = CheckSnapKv(Spec(0), {.budget = 9, .window = wrong});
    EXPECT_NE(status.message().find("snapkv.window"), std::string::npos);
  }
}

TEST(KeepList, SaysHowMuchOfEachPartIsKept) {
  // Ten rows in four parts: [0, 3), [3, 5), [5, 8), [8, 10).
  const std::vector<int32_t> lists = {0, 1, 2, 9, /**/ 0, 4, 8, 9};
  EXPECT_EQ(KeptAlong(lists, 4, 10, 4), (std::vector<uint8_t>{67, 25, 0, 75}));
  EXPECT_EQ(KeptAlong(lists, 4, 10, 1), (std::vector<uint8_t>{40}));
  EXPECT_EQ(KeptAlong(lists, 4, 10, 10),
            (std::vector<uint8_t>{100, 50, 50, 0, 50, 0, 0, 0, 50, 100}));
}

}  // namespace
}  // namespace reprise
