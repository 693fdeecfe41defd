// SPDX-License-Identifier: Apache-2.0
// Proves who runs: streams always, prompts in bounded chunks, the oldest never starved, idle work
// alone.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sched/rank.h"

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

// Where a step is quick, the promised gap would be hundreds of them.
TEST(Scheduler, StreamsAreSlowedDownTenfoldAtMost) {
  Scheduler scheduler({.gap_ms_max = 200});
  const std::vector<Runnable> both = {Prompt(100000, 1), Stream()};
  const std::vector<Runnable> stream = {Stream()};
  const auto chunk = [&](double step_ms, double row_ms) {
    for (int i = 0; i < 50; ++i) {
      scheduler.Plan(stream);
      scheduler.Observe(1, step_ms + row_ms);
      const int32_t rows = scheduler.Plan(both)[0] + 1;
      scheduler.Observe(rows, step_ms + row_ms * rows);
    }
    return scheduler.Plan(both)[0];
  };
  const auto near = [](int32_t rows, double wanted) { return std::abs(rows - wanted) <= 2; };
  // A chunk and its step together: ten times 1.1 ms, at 0.1 ms a row and what a step costs.
  EXPECT_TRUE(near(chunk(1, 0.1), 100)) << chunk(1, 0.1);
  EXPECT_TRUE(near(chunk(50, 2), 75)) << "the gap is less than ten steps: " << chunk(50, 2);
  EXPECT_TRUE(near(chunk(0.01, 0.001), 100)) << chunk(0.01, 0.001);
}

// A GPU: 27 ms with one stream and 104 rows of prompt, 33 ms with 512. Time per row settled at the
// former (and ten times what a token takes is 26 ms); the curve finds what 50 ms have time for.
TEST(Scheduler, StepsBesideStreamsFillTheGap) {
  Scheduler scheduler({.rows_max = 4096, .rows_alone = 512, .gap_ms_max = 50, .slow_down_max = 0});
  const auto step_ms = [](int32_t rows) { return rows <= 4 ? 2.6 : 25.5 + 0.0147 * rows; };
  const std::vector<Runnable> stream = {Stream()};
  const std::vector<Runnable> both = {Prompt(1 << 20, 1), Stream()};
  for (int i = 0; i < 20; ++i) {
    scheduler.Plan(stream);
    scheduler.Observe(1, step_ms(1));
  }
  int32_t rows = 0;
  for (int step = 0; step < 10; ++step) {
    rows = scheduler.Plan(both)[0];
    ASSERT_LE(step_ms(rows + 1), 51) << rows << " rows in step " << step;
    scheduler.Observe(rows + 1, step_ms(rows + 1));
  }
  EXPECT_GT(rows, 1500);
  // Many streams take their rows out of the same time.
  std::vector<Runnable> many(257, Stream());
  many[0] = Prompt(1 << 20, 1);
  EXPECT_NEAR(scheduler.Plan(many)[0], rows - 255, 2);
}

// One that comes while a step without streams runs waits for two gaps at most, where 512 rows take
// less.
TEST(Scheduler, StepsWithoutStreamsGrowToTwoGaps) {
  const auto rows_of = [](double row_ms) {
    Scheduler scheduler(
        {.rows_max = 4096, .rows_alone = 512, .gap_ms_max = 50, .slow_down_max = 0});
    const std::vector<Runnable> prompt = {Prompt(1 << 20, 1)};
    int32_t rows = 0;
    for (int step = 0; step < 20; ++step) {
      rows = scheduler.Plan(prompt)[0];
      scheduler.Observe(rows, 3 + row_ms * rows);
    }
    return rows;
  };
  EXPECT_EQ(rows_of(0.007), 4096);
  EXPECT_NEAR(rows_of(0.05), 1940, 20);
  EXPECT_EQ(rows_of(0.3), 512) << "a slow machine";
}

// What was learnt of short prompts beside streams does not hold a long one back.
TEST(Scheduler, ShortPromptsTeachLittleAboutLongOnes) {
  Scheduler scheduler({.rows_max = 4096, .rows_alone = 512, .gap_ms_max = 50, .slow_down_max = 0});
  const auto step_ms = [](int32_t rows) { return 3 + 0.03 * rows; };
  const auto run = [&](std::vector<Runnable> runnables) {
    const StepPlan plan = scheduler.Plan(runnables);
    const int32_t rows = std::accumulate(plan.begin(), plan.end(), 0);
    scheduler.Observe(rows, step_ms(rows));
    return plan[0];
  };
  for (int i = 0; i < 8; ++i) run({Prompt(1 << 20, 1)});
  for (int i = 0; i < 8; ++i) run({Stream()});
  run({Prompt(20, 1), Stream()});
  EXPECT_GT(run({Prompt(1 << 20, 1), Stream()}), 1000);
}

TEST(Scheduler, ShortPromptsOvertakeButTheOldestKeepsItsShare) {
  const StepPlan plan = PlanOf({Prompt(100000, 1), Prompt(300, 2), Prompt(30, 3)});
  EXPECT_EQ(plan, (StepPlan{64, 300, 30}));
  EXPECT_EQ(PlanOf({Prompt(100000, 1), Prompt(600, 2), Prompt(700, 3)}), (StepPlan{128, 384, 0}))
      << "nobody's first token is near: the step is filled";
}

// Who is asked something short waits for no chunk of what is long.
TEST(Scheduler, AStepInWhichAPromptEndsIsAsShortAsOneWithStreams) {
  Scheduler scheduler({.gap_ms_max = 100});
  for (int i = 0; i < 50; ++i) scheduler.Observe(512, 1024);  // 2 ms a row
  const std::vector<Runnable> both = {Prompt(100000, 1), Prompt(30, 2)};
  EXPECT_EQ(scheduler.Plan(both), (StepPlan{50, 30}));
  const std::vector<Runnable> alone = {Prompt(100000, 1)};
  EXPECT_EQ(scheduler.Plan(alone), (StepPlan{512}));
  // Many short ones fill it.
  std::vector<Runnable> many(20, Prompt(30, 2));
  many.push_back(Prompt(100000, 1));
  const StepPlan plan = scheduler.Plan(many);
  EXPECT_EQ(std::accumulate(plan.begin(), plan.end(), 0), 512);
  EXPECT_EQ(plan.back(), 50);
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

// However many streams there are, and however small a step is.
TEST(Scheduler, PromptsKeepTheirShareBesideStreams) {
  std::vector<Runnable> runnables(512, Stream());
  runnables.push_back(Prompt(1000, 1));
  Scheduler scheduler({});
  std::vector<int> runs(runnables.size(), 0);
  for (int step = 0; step < 8; ++step) {
    const StepPlan plan = scheduler.Plan(runnables);
    EXPECT_GE(plan.back(), 16);
    for (size_t i = 0; i < plan.size(); ++i) runs[i] += plan[i];
  }
  EXPECT_GE(*std::min_element(runs.begin(), runs.end()), 6) << "and streams go on";

  Scheduler narrow({.rows_max = 1});
  const std::vector<Runnable> two = {Stream(), Prompt(1000, 1)};
  StepPlan sum(2, 0);
  for (int step = 0; step < 10; ++step) {
    const StepPlan plan = narrow.Plan(two);
    sum[0] += plan[0];
    sum[1] += plan[1];
  }
  EXPECT_EQ(sum, (StepPlan{5, 5}));
}

// Streams of a tenant that has more than its share, where there are others.
TEST(Scheduler, ACrowdTakesTurnsWhereRowsAreDear) {
  const auto most_ms = [](double step_ms, double row_ms) {
    Scheduler scheduler({});
    std::vector<Runnable> streams(16, Stream());
    for (Runnable& one : streams) one.crowds = true;
    std::vector<int> runs(streams.size(), 0);
    std::vector<double> times;
    for (int step = 0; step < 400; ++step) {
      const StepPlan plan = scheduler.Plan(streams);
      const int32_t rows = std::accumulate(plan.begin(), plan.end(), 0);
      scheduler.Observe(rows, step_ms + row_ms * rows);
      times.push_back(step_ms + row_ms * rows);
      for (size_t i = 0; i < plan.size(); ++i) runs[i] += plan[i];
    }
    EXPECT_GE(*std::min_element(runs.begin(), runs.end()), 400 / 16 - 1);
    EXPECT_LE(*std::max_element(runs.begin(), runs.end()) -
                  *std::min_element(runs.begin(), runs.end()), 1);
    // All but the first, and a few that look what more of them take.
    std::sort(times.begin() + 10, times.end());
    return times[times.size() - 1 - times.size() / 64];
  };
  EXPECT_LE(most_ms(0, 1), 3.1) << "three streams";
  EXPECT_LE(most_ms(2, 1), 9.1);
  EXPECT_DOUBLE_EQ(most_ms(10, 0.1), 11.6) << "all, where rows cost little";
}

TEST(Scheduler, ACrowdStandsAsideForAPromptThatEnds) {
  Scheduler scheduler({});
  std::vector<Runnable> runnables(17, Stream());
  for (Runnable& one : runnables) one.crowds = true;
  runnables[16] = Prompt(10, 1);
  StepPlan plan = scheduler.Plan(runnables);
  EXPECT_EQ(std::accumulate(plan.begin(), plan.end(), 0), 10) << "the prompt, and no stream";
  EXPECT_EQ(plan[16], 10);
  scheduler.Observe(10, 1);
  plan = scheduler.Plan(runnables);
  EXPECT_GE(std::accumulate(plan.begin(), plan.end(), 0), 10 + 1) << "but not twice in a row";
  // Not for what is long, nor for the crowd's own prompts.
  runnables[16] = Prompt(100'000, 1);
  for (int step = 0; step < 2; ++step) EXPECT_EQ(scheduler.Plan(runnables)[0], 1);
  runnables[16] = Prompt(10, 1);
  runnables[16].crowds = true;
  for (int step = 0; step < 2; ++step) EXPECT_EQ(scheduler.Plan(runnables)[0], 1);
  // Streams of others go on in every step.
  runnables[16] = Prompt(10, 1);
  runnables[0].crowds = false;
  for (int step = 0; step < 4; ++step) EXPECT_EQ(scheduler.Plan(runnables)[0], 1);
}

TEST(Scheduler, IdleWorkRunsOnlyAlone) {
  EXPECT_GT(PlanOf({Idle(1000)})[0], 0);
  EXPECT_EQ(PlanOf({Idle(1000), Prompt(5, 1)}), (StepPlan{0, 5}));
  EXPECT_EQ(PlanOf({Stream(), Idle(1000)}), (StepPlan{1, 0}));
}

// Machines that take some time for a step and more for each row.
TEST(Scheduler, IdleWorkKeepsToTheGap) {
  const std::vector<Runnable> idle = {Idle(1000)};
  const auto most = [&](double step_ms, double row_ms) {
    Scheduler scheduler({.gap_ms_max = 200});
    int32_t rows = 0;
    for (int step = 0; step < 50; ++step) {
      rows = scheduler.Plan(idle)[0];
      const double ms = step_ms + row_ms * rows;
      EXPECT_TRUE(rows == 1 || ms <= 200) << rows << " rows in step " << step;
      scheduler.Observe(rows, ms, true);
    }
    return rows;
  };
  EXPECT_EQ(most(20, 20), 8);
  EXPECT_EQ(most(0, 0.1), 128);
  EXPECT_EQ(most(50, 300), 1) << "one row at least";
  EXPECT_GE(most(60, 1), 100);
}

// Drafts of a scheduler that has seen steps of all sizes with streams, at so much for each step and
// row.
std::vector<int32_t> DraftsOf(double step_ms, double row_ms, std::vector<Runnable> runnables,
                              std::vector<DraftWish> wishes, int32_t count_max = 1000) {
  Scheduler scheduler({});
  for (int32_t rows = 1; rows <= 256; rows *= 2) {
    scheduler.Plan(std::vector<Runnable>(1, Stream()));
    scheduler.Observe(rows, step_ms + row_ms * rows);
    scheduler.Plan(std::vector<Runnable>{Stream(), Prompt(1000, 1)});
    scheduler.Observe(rows, step_ms + row_ms * rows);
  }
  scheduler.Plan(runnables);
  return scheduler.PlanDrafts(wishes, count_max);
}

TEST(Scheduler, DraftsAreWhatIsWorthItsTime) {
  using Plan = std::vector<int32_t>;
  const std::vector<Runnable> one = {Stream()};
  EXPECT_EQ(DraftsOf(10, 0, one, {{8, 0.9}}), (Plan{8})) << "rows that cost nothing";
  EXPECT_EQ(DraftsOf(0, 10, one, {{8, 0.98}}), (Plan{0})) << "rows that cost a step each";
  EXPECT_EQ(DraftsOf(10, 0, one, {{8, 0.01}}), (Plan{0})) << "next to nothing is won";
  EXPECT_EQ(DraftsOf(10, 0, one, {{0, 0.9}}), (Plan{0}));
  EXPECT_EQ(DraftsOf(10, 0, one, {{16, 0.9}}, 5), (Plan{5}));
  // The first draft is worth a tenth of a step, the fourth is not.
  EXPECT_EQ(DraftsOf(10, 1, one, {{16, 0.5}}), (Plan{2}));
  // Likelier ones first, and fewer in company: the others wait for them.
  const std::vector<Runnable> two = {Stream(), Stream()};
  const Plan shared = DraftsOf(10, 1, two, {{16, 0.9}, {16, 0.4}});
  EXPECT_GT(shared[0], shared[1]);
  EXPECT_EQ(
      DraftsOf(1, 1, std::vector<Runnable>(16, Stream()), std::vector<DraftWish>(16, {16, 0.6})),
      Plan(16, 0));
  // Beside a prompt that fills the step.
  EXPECT_EQ(DraftsOf(10, 1, {Stream(), Prompt(1000, 1)}, {{16, 0.7}}), (Plan{0}));
}

// Sizes that were never seen are tried, twice the largest at most.
TEST(Scheduler, DraftsFindOutWhatTheyCost) {
  Scheduler scheduler({});
  const std::vector<Runnable> one = {Stream()};
  scheduler.Plan(one);
  EXPECT_EQ(scheduler.PlanDrafts(std::vector<DraftWish>{{16, 0.9}}, 16)[0], 0) << "no step yet";
  int32_t rows = 1;
  for (const int32_t most : {3, 7, 15, 17, 17}) {
    scheduler.Observe(rows, 10);
    scheduler.Plan(one);
    rows = 1 + scheduler.PlanDrafts(std::vector<DraftWish>{{16, 0.95}}, 16)[0];
    EXPECT_EQ(rows, most);
  }
  // What was dear once is tried again, now and then.
  int tries = 0;
  for (int step = 0; step < 200; ++step) {
    const int32_t drafts = scheduler.PlanDrafts(std::vector<DraftWish>{{1, 0.9}}, 16)[0];
    scheduler.Observe(1 + drafts, drafts > 0 ? 30 : 10);
    tries += drafts;
    scheduler.Plan(one);
  }
  EXPECT_GE(tries, 2);
  EXPECT_LE(tries, 8);
}

// A try costs time: while drafts are not worth it, there is one in a thousand steps.
TEST(Scheduler, WhatIsNotWorthItIsTriedSeldom) {
  Scheduler scheduler({});
  const std::vector<Runnable> one = {Stream()};
  const std::vector<DraftWish> wish = {{1, 0.57}};
  int tries = 0, guesses = 0;
  const auto step = [&](double drafted_ms) {
    scheduler.Plan(one);
    const int32_t drafts = scheduler.PlanDrafts(wish, 16)[0];
    tries += drafts;
    scheduler.Observe(1 + drafts, drafts > 0 ? drafted_ms : 0.85);
  };
  for (int i = 0; i < 10000; ++i) {
    step(1.9);
    guesses += scheduler.DraftsWorth(std::vector<double>{0.57}, 0.4, 1);
  }
  EXPECT_GE(tries, 8) << "times change";
  EXPECT_LE(tries, 16);
  EXPECT_GE(guesses, 8);
  EXPECT_LE(guesses, 16);
  // Where they are worth it in the end, that is found out, and most steps have them.
  tries = 0;
  for (int i = 0; i < 20000; ++i) step(0.9);
  EXPECT_GT(tries, 8000);
}

// Sizes that were dear while others had the CPU are tried again.
TEST(Scheduler, DearStepsAreTriedAgain) {
  Scheduler scheduler({});
  const std::vector<Runnable> one = {Stream()};
  int32_t rows = 1;
  int steps = 0, dear = 0;
  for (; steps < 1000 && (rows < 17 || dear < 6); ++steps) {
    scheduler.Plan(one);
    rows = 1 + scheduler.PlanDrafts(std::vector<DraftWish>{{16, 0.97}}, 16)[0];
    const bool busy = rows > 4 && dear++ < 6;
    scheduler.Observe(rows, busy ? 1000 : 10 + 0.1 * rows);
  }
  EXPECT_LT(steps, 300);
}

// Drafts that take time to guess: as many as the time is worth.
TEST(Scheduler, GuessesAreAskedForWhereTheyAreWorthTheirTime) {
  const auto worth = [](std::vector<double> acceptance, double draft_ms, int32_t most = 16) {
    Scheduler scheduler({});
    const std::vector<Runnable> runnables(acceptance.size(), Stream());
    for (int32_t rows = 1; rows <= 64; rows *= 2) {
      scheduler.Plan(runnables);
      scheduler.Observe(rows, 100 + rows);
    }
    scheduler.Plan(runnables);
    return scheduler.DraftsWorth(acceptance, draft_ms, most);
  };
  EXPECT_EQ(worth({0.98}, 0.01), 16);
  EXPECT_EQ(worth({0.98}, 0.01, 5), 5);
  EXPECT_EQ(worth({0.9}, 100), 0) << "a guess takes as long as a step";
  EXPECT_EQ(worth({0.1}, 20), 0);
  EXPECT_GT(worth({0.8}, 10), 1);
  EXPECT_LT(worth({0.8}, 10), 8);
  EXPECT_EQ(worth({0.8, 0.8, 0.8}, 40), worth({0.8}, 40)) << "a pass guesses for all";
  // What was dear once is tried again, now and then.
  Scheduler scheduler({});
  const std::vector<Runnable> one = {Stream()};
  int tries = 0;
  for (int step = 0; step < 200; ++step) {
    scheduler.Plan(one);
    scheduler.Observe(1, 10);
    scheduler.Plan(one);
    tries += scheduler.DraftsWorth(std::vector<double>{0.5}, 100, 16);
  }
  EXPECT_EQ(tries, 2);
}

// Priority, then tenants within their share, then turns, then arrival.
TEST(Rank, IsOneOrder) {
  const Rank first{.priority = 1, .over_share = true, .turn = 9, .arrival = 9};
  const Rank second{.priority = 0, .turn = 1, .arrival = 8};
  const Rank third{.priority = 0, .turn = 2, .arrival = 6};
  const Rank fourth{.priority = 0, .turn = 2, .arrival = 7};
  const Rank fifth{.priority = 0, .over_share = true, .turn = 0, .arrival = 1};
  const Rank order[] = {first, second, third, fourth, fifth};
  for (int a = 0; a < 5; ++a) {
    for (int b = 0; b < 5; ++b) EXPECT_EQ(order[a] < order[b], a < b);
  }
  EXPECT_TRUE(Yields(second, first)) << "a lower priority";
  EXPECT_TRUE(Yields(fifth, second)) << "more than its share";
  EXPECT_FALSE(Yields(fourth, third)) << "only later";
  EXPECT_FALSE(Yields(first, fifth));
}

TEST(Rank, SharesAreDividedByWeight) {
  EXPECT_EQ(ShareOf(16, 1, 1), 16);
  EXPECT_EQ(ShareOf(16, 1, 3), 5);
  EXPECT_EQ(ShareOf(16, 3, 4), 12);
  EXPECT_EQ(ShareOf(2, 1, 100), 1);
}

}  // namespace
}  // namespace reprise
