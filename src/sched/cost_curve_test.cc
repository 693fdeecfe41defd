// SPDX-License-Identifier: Apache-2.0
// Proves that the curve finds what a machine takes, follows it when it changes, and never answers
// with a step that is far from all that is known.
#include "sched/cost_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace reprise {
namespace {

// A machine that reads weights once a step, computes rows in turns of 128, and has a limit.
double GpuMs(int32_t rows) { return 2.6 + 0.04 * 128 * std::ceil(rows / 128.0); }

TEST(CostCurve, OneStepIsExtendedThroughZero) {
  CostCurve cost;
  EXPECT_FALSE(cost.known());
  cost.Observe(100, 50);
  EXPECT_TRUE(cost.known());
  EXPECT_DOUBLE_EQ(cost.Ms(100), 50);
  EXPECT_DOUBLE_EQ(cost.Ms(50), 25);
  EXPECT_EQ(cost.RowsWithin(40), 80);
  EXPECT_EQ(cost.RowsWithin(1000), 200) << "twice what was seen";
  EXPECT_EQ(cost.RowsWithin(0.1), 0);
}

TEST(CostCurve, TwoStepsShowWhatACostCurvesWithoutRows) {
  CostCurve cost;
  cost.Observe(100, 30);
  cost.Observe(300, 50);
  EXPECT_DOUBLE_EQ(cost.Ms(1), 20.1);
  EXPECT_DOUBLE_EQ(cost.Ms(200), 40);
  EXPECT_DOUBLE_EQ(cost.Ms(500), 70);
  EXPECT_EQ(cost.RowsWithin(45), 250);
  EXPECT_EQ(cost.RowsWithin(20), 0);
}

// The estimate had two fixed points when it was time per row: 104 rows in 27 ms suggested 192 rows
// for 50 ms, where 512 take 33.
TEST(CostCurve, StepsGrowUntilTheyTakeTheTime) {
  CostCurve cost;
  int32_t rows = 104;
  int steps = 0;
  const auto ms = [](int32_t r) { return 25.5 + 0.0146 * r; };
  for (; steps < 20 && std::abs(ms(rows) - 50) > 0.5; ++steps) {
    cost.Observe(rows, ms(rows));
    rows = std::max(1, cost.RowsWithin(50));
  }
  EXPECT_LE(steps, 6);
  EXPECT_NEAR(ms(rows), 50, 0.5);
}

TEST(CostCurve, FollowsAMachineThatBecomesSlowerAndFaster) {
  CostCurve cost;
  for (int32_t rows = 1; rows <= 4096; rows *= 2) cost.Observe(rows, GpuMs(rows));
  double factor = 1;
  int32_t rows = 0;
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      rows = std::max(1, cost.RowsWithin(50));
      cost.Observe(rows, factor * GpuMs(rows));
    }
    return factor * GpuMs(rows);
  };
  EXPECT_NEAR(run(10), 50, 6);
  factor = 4;
  EXPECT_NEAR(run(30), 50, 12) << rows;
  factor = 1;
  EXPECT_NEAR(run(40), 50, 6) << rows;
}

TEST(CostCurve, MoreRowsNeverCostLess) {
  CostCurve cost;
  uint64_t random = 1;
  for (int i = 0; i < 2000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto rows = static_cast<int32_t>(1 + (random >> 33) % 5000);
    const double noise = 0.5 + static_cast<double>((random >> 20) % 1000) / 250;
    cost.Observe(rows, noise * GpuMs(rows));
    double before = 0;
    for (int32_t r = 1; r < 10000; r += 1 + r / 7) {
      ASSERT_GE(cost.Ms(r), before) << r << " rows after step " << i;
      before = cost.Ms(r);
    }
  }
}

// One step that took long (a first launch, a page fault) is forgotten within a few.
TEST(CostCurve, OneSlowStepIsForgotten) {
  CostCurve cost;
  cost.Observe(512, 900);
  for (int i = 0; i < 8; ++i) cost.Observe(512, 30);
  EXPECT_LT(cost.Ms(512), 35);
}

// The first step of a size may have taken memory for the first time: the second one is believed if
// it is quicker.
TEST(CostCurve, TheFirstStepOfASizeIsForgottenAtOnce) {
  CostCurve cost;
  cost.Observe(1, 10);
  cost.Observe(8, 900);
  cost.Observe(8, 12);
  EXPECT_NEAR(cost.Ms(8), 12, 1e-9);
  cost.Observe(8, 10);
  EXPECT_NEAR(cost.Ms(8), 11, 1e-9);
}

}  // namespace
}  // namespace reprise
