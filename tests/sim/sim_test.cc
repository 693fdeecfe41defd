// SPDX-License-Identifier: Apache-2.0
// The whole engine with a fake model and a fake clock, over thousands of seeded schedules: every
// logit must be the one of a cold run, every request must end, and the cache's books must balance.
// And the proof that this test can fail: one flipped byte, one restore that is a token off, must be
// caught.
//
// More seeds: REPRISE_SIM_SEEDS=1000000 build/dev/tests/sim_test; from REPRISE_SIM_FIRST on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "device/raw.h"
#include "device/scarce_memory.h"
#include "engine/audit/audit.h"
#include "fake_executor.h"

namespace reprise {
namespace {

[[maybe_unused]] const bool kQuiet = (SetLogLevel(LogLevel::kWarning), true);
constexpr uint64_t kSeeds = 20000;
constexpr FakeExecutor::Kind kKinds[] = {
    FakeExecutor::Kind::kAttention, FakeExecutor::Kind::kRecurrent, FakeExecutor::Kind::kHybrid};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

AuditResult RunFake(const Schedule& schedule, FakeExecutor& executor, int invariant_interval,
                    const Sabotage& sabotage = {}) {
  const ColdLogits cold = [&](uint32_t space, std::span<const TokenId> tokens, float* logits) {
    executor.ColdLogits(space, tokens, logits);
  };
  return RunSchedule(schedule, executor, cold, invariant_interval, sabotage);
}

TEST(Simulation, EveryScheduleGivesTheColdAnswer) {
  uint64_t reused = 0;
  uint64_t evicted = 0;
  uint64_t preempted = 0;
  uint64_t compared = 0;
  uint64_t spills = 0;
  uint64_t loads = 0;
  uint64_t compactions = 0;
  const uint64_t first = FromEnvironment("REPRISE_SIM_FIRST", 0);
  const uint64_t count = FromEnvironment("REPRISE_SIM_SEEDS", kSeeds);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Schedule schedule = MakeSchedule(seed, {.long_context_tokens = 4096});
    // Some in memory that cannot be touched where nothing was taken, several units to a page.
    ScarceMemory strict(SIZE_MAX, size_t{256} << 10);
    FakeExecutor executor(kKinds[seed % 3]);
    if (seed % 5 == 0) executor.set_memory(&strict);
    const AuditResult result = RunFake(schedule, executor, 16);
    ASSERT_FALSE(result.difference)
        << "request " << result.difference->request << ", position " << result.difference->position
        << ": " << result.difference->text << "\n"
        << Describe(schedule);
    reused += result.tokens_reused;
    evicted += result.evicted;
    preempted += result.preemptions;
    compared += result.logits_compared;
    spills += result.spills;
    loads += result.loads;
    compactions += result.compactions;
  }
  // The schedules must exercise what they are for.
  EXPECT_GT(reused, count * 20);
  EXPECT_GT(evicted, count / 4);
  EXPECT_GT(preempted, count / 100);
  EXPECT_GT(spills, count / 10);
  EXPECT_GT(loads, count / 100);
  EXPECT_GT(compactions, count / 20);
  RecordProperty("compactions", std::to_string(compactions));
  RecordProperty("spills", std::to_string(spills));
  RecordProperty("loads", std::to_string(loads));
  RecordProperty("logits_compared", std::to_string(compared));
  RecordProperty("evicted", std::to_string(evicted));
  RecordProperty("preempted", std::to_string(preempted));
}

// Large states are filled beside the engine's thread: whoever runs, reads, spills or frees one too
// early gives a wrong answer.
TEST(Simulation, EveryScheduleGivesTheColdAnswerWithLargeStates) {
  constexpr int64_t kStateWords = (int64_t{1} << 18) + 1024;  // more than a mebibyte
  const uint64_t count = FromEnvironment("REPRISE_SIM_LARGE_SEEDS", 60);
  uint64_t reused = 0, evicted = 0;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const Schedule schedule = MakeSchedule(seed, {});
    FakeExecutor executor(kKinds[1 + seed % 2], 4096, kStateWords);
    const AuditResult result = RunFake(schedule, executor, 4);
    ASSERT_FALSE(result.difference) << result.difference->text << "\n" << Describe(schedule);
    reused += result.tokens_reused;
    evicted += result.evicted;
  }
  EXPECT_GT(reused, count * 20);
  EXPECT_GT(evicted, count / 4);
}

// Whether one of the first schedules notices that something is broken.
bool Caught(FakeExecutor::Kind kind, bool late_taps, const Sabotage& sabotage) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    FakeExecutor executor(kind);
    if (late_taps) executor.MakeTapsOneTokenLate();
    if (RunFake(MakeSchedule(seed, {}), executor, 1 << 30, sabotage).difference) return true;
  }
  return false;
}

TEST(Simulation, OneFlippedBitInABlockIsCaught) {
  const Sabotage flip = [](StateCache& cache) { *Raw(cache.memory().block({0})) ^= std::byte{1}; };
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kAttention, false, flip));
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kHybrid, false, flip));
}

TEST(Simulation, OneFlippedBitInAStateIsCaught) {
  const Sabotage flip = [](StateCache& cache) { *Raw(cache.memory().state({0})) ^= std::byte{1}; };
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kRecurrent, false, flip));
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kHybrid, false, flip));
}

TEST(Simulation, ATierThatGivesAWrongBitIsCaught) {
  for (const FakeExecutor::Kind kind : kKinds) {
    bool caught = false;
    for (uint64_t seed = 0; seed < 2000 && !caught; ++seed) {
      Schedule schedule = MakeSchedule(seed, {});
      schedule.tier = schedule.tier_lies = true;
      FakeExecutor executor(kind);
      caught = RunFake(schedule, executor, 1 << 30).difference.has_value();
    }
    EXPECT_TRUE(caught);
  }
}

TEST(Simulation, SnapshotsThatAreOneTokenOffAreCaught) {
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kRecurrent, true, {}));
  EXPECT_TRUE(Caught(FakeExecutor::Kind::kHybrid, true, {}));
  EXPECT_FALSE(Caught(FakeExecutor::Kind::kHybrid, false, {})) << "and nothing else is";
}

TEST(Simulation, FailingSchedulesShrink) {
  const auto fails = [](const Schedule& schedule) {
    FakeExecutor executor(FakeExecutor::Kind::kHybrid);
    executor.MakeTapsOneTokenLate();
    return RunFake(schedule, executor, 1 << 30).difference.has_value();
  };
  Schedule failing;
  for (uint64_t seed = 0; failing.requests.empty(); ++seed) {
    const Schedule schedule = MakeSchedule(seed, {});
    if (schedule.requests.size() > 6 && fails(schedule)) failing = schedule;
  }
  const Schedule small = Shrink(failing, fails);
  EXPECT_TRUE(fails(small));
  EXPECT_LE(small.requests.size(), 3u) << Describe(small);
}

}  // namespace
}  // namespace reprise
