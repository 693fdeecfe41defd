// SPDX-License-Identifier: Apache-2.0
// Proves who runs: streams always, prompts in bounded chunks, the oldest never starved, idle work
// alone.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace reprise {
namespace {

Runnable Prompt(int32_t rows, uint64_t arrival, int32_t priority = 0) {
  return {.rows_ready = rows, .rows_max = 1 << 30, .priority = priority, .arrival = arrival};
}
Runnable Stream() { return {.rows_ready = 1, .rows_max = 1 << 30, .decoding = true}; }
Runnable Idle(int32_t rows) { return {.rows_ready = rows, .rows_max = 1 << 30, .idle = true}; }

StepPlan PlanOf(std::vector<Runnable> runnables, SchedulerOptions options = {}) {
  return Scheduler(options).Plan(runnables);
}

TEST(Scheduler, APromptAloneGetsTheWholeStep) {
  EXPECT_EQ(PlanOf({Prompt(1000, 1)}), (StepPlan{512}));
  EXPECT_EQ(PlanOf({Prompt(10, 1)}), (StepPlan{10}));
}

TEST(Scheduler, ASequenceMayHaveALimitOfItsOwn) {
  Runnable prompt = Prompt(1000, 1);
  prompt.rows_max = 100;
  EXPECT_EQ(PlanOf({prompt}), (StepPlan{100}));
}

TEST(Scheduler, StreamsRunInEveryStepAndBoundTheChunk) {
  Scheduler scheduler({.gap_ms_max = 100});
  for (int i = 0; i < 50; ++i) scheduler.Observe(512, 1024);  // 2 ms a row
  EXPECT_EQ(scheduler.gap_rows(), 50);
  const std::vector<Runnable> runnables = {Prompt(100000, 1), Stream(), Stream()};
  EXPECT_EQ(scheduler.Plan(runnables), (StepPlan{50, 1, 1}));
  for (int i = 0; i < 50; ++i) scheduler.Observe(512, 512000);  // a very slow machine
  EXPECT_EQ(scheduler.Plan(runnables), (StepPlan{16, 1, 1}));
}

TEST(Scheduler, ShortPromptsOvertakeButTheOldestKeepsItsShare) {
  const StepPlan plan = PlanOf({Prompt(100000, 1), Prompt(300, 2), Prompt(30, 3)});
  EXPECT_EQ(plan, (StepPlan{182, 300, 30}));
}

TEST(Scheduler, PriorityComesFirst) {
  const StepPlan plan = PlanOf({Prompt(500, 1), Prompt(1000, 2, 5)});
  EXPECT_EQ(plan[1], 384);
  EXPECT_EQ(plan[0], 128);
}

TEST(Scheduler, MoreStreamsThanRowsTakeTurns) {
  Scheduler scheduler({.rows_max = 4});
  std::vector<Runnable> streams(6, Stream());
  std::vector<int> runs(6, 0);
  for (int step = 0; step < 3; ++step) {
    const StepPlan plan = scheduler.Plan(streams);
    EXPECT_EQ(std::accumulate(plan.begin(), plan.end(), 0), 4);
    for (size_t i = 0; i < 6; ++i) runs[i] += plan[i];
  }
  EXPECT_EQ(runs, std::vector<int>(6, 2));
}

TEST(Scheduler, IdleWorkRunsOnlyAloneAndBriefly) {
  EXPECT_EQ(PlanOf({Idle(1000)}), (StepPlan{128}));
  EXPECT_EQ(PlanOf({Idle(1000), Prompt(5, 1)}), (StepPlan{0, 5}));
  EXPECT_EQ(PlanOf({Stream(), Idle(1000)}), (StepPlan{1, 0}));
}

}  // namespace
}  // namespace reprise
