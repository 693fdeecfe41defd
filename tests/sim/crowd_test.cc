// SPDX-License-Identifier: Apache-2.0
// What a tenant with many streams lets others wait, by a clock that the model moves: a request that
// comes at any moment has its first token within a few times what it takes alone, however many
// streams there are, and these lose little by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine_fixture.h"
#include "paced_executor.h"

namespace reprise {
namespace {

constexpr int kPlaces = 16;

class CrowdTest : public ::testing::Test {
 protected:
  explicit CrowdTest(PacedExecutor::Pace pace = {0.3, 0.6})
      : executor_(PacedExecutor::Kind::kHybrid, pace), fixture_(executor_, Cache(), Engines()) {
    // In the middle of a step: whoever comes waits for the rest of it.
    executor_.SetWatch(&fixture_.clock(), [this](const BatchView& batch) {
      longest_ms_ = std::max(longest_ms_, executor_.StepMs(batch.tokens.size()));
      if (!std::exchange(comes_, false)) return;
      asked_ns_ = fixture_.clock().NowNs();
      quiet_ = Ask("quiet", 4, 1);
    });
  }
  static CacheOptions Cache() {
    CacheOptions cache;
    cache.context_tokens = 4096;
    cache.sequence_count = kPlaces;
    cache.budget_bytes = size_t{256} << 20;
    return cache;
  }
  static EngineOptions Engines() {
    EngineOptions options;
    options.running_max = kPlaces;
    options.waiting_max = 256;
    return options;
  }

  std::shared_ptr<TokenStream> Ask(const std::string& tenant, int32_t prompt, int32_t reply) {
    GenerateRequest request;
    for (int32_t i = 0; i < prompt; ++i) {
      request.prompt.push_back(static_cast<TokenId>(rng_.Below(PacedExecutor::kVocab)));
    }
    request.max_tokens = reply;
    request.sampling.temperature = 0;
    request.salt = request.tenant = tenant;
    return fixture_.Submit(std::move(request));
  }

  // What a request of the quiet tenant takes that comes in the next step.
  double QuietMs() {
    comes_ = true;
    while (comes_ || !quiet_->Poll().completion) EXPECT_TRUE(fixture_.engine().Step());
    return double(fixture_.clock().NowNs() - asked_ns_) / 1e6;
  }

  PacedExecutor executor_;
  EngineFixture fixture_;
  Rng rng_{1};
  std::shared_ptr<TokenStream> quiet_;
  bool comes_ = false;
  int64_t asked_ns_ = 0;
  double longest_ms_ = 0;
};

TEST_F(CrowdTest, WhoComesWaitsAFewTimesWhatItTakesAlone) {
  const double alone_ms = executor_.StepMs(4);
  std::vector<std::shared_ptr<TokenStream>> loud;
  for (int i = 0; i < 4 * kPlaces; ++i) loud.push_back(Ask("loud", 20, 3000));
  for (int i = 0; i < 100; ++i) fixture_.engine().Step();
  EXPECT_GT(longest_ms_, 3 * alone_ms) << "alone it has all of every step";
  QuietMs();  // from now on there are two tenants
  for (int i = 0; i < 20; ++i) fixture_.engine().Step();
  double most = 0;
  for (int i = 0; i < 200; ++i) {
    most = std::max(most, QuietMs());
    for (int step = 0; step < i % 5; ++step) fixture_.engine().Step();
  }
  EXPECT_LE(most, 5 * alone_ms);
  // Those that crowd take turns: none is left behind.
  size_t least = SIZE_MAX, all = 0;
  int running = 0;
  for (const auto& stream : loud) {
    const size_t tokens = stream->Poll().tokens.size();
    if (tokens == 0) continue;
    ++running;
    all += tokens;
    least = std::min(least, tokens);
  }
  EXPECT_GE(running, kPlaces);
  EXPECT_GT(all, 500u);
  // Some seconds after the last request of another it has all of every step again.
  fixture_.clock().AdvanceMs(11'000);
  longest_ms_ = 0;
  for (int i = 0; i < 5; ++i) fixture_.engine().Step();
  EXPECT_DOUBLE_EQ(longest_ms_, executor_.StepMs(kPlaces));
}

// Where rows cost little beside the step itself, nobody is put off.
class CheapCrowdTest : public CrowdTest {
 protected:
  CheapCrowdTest() : CrowdTest({2, 0.05}) {}
};

TEST_F(CheapCrowdTest, StreamsThatCostLittleAllRun) {
  for (int i = 0; i < 4 * kPlaces; ++i) Ask("loud", 20, 3000);
  for (int i = 0; i < 100; ++i) fixture_.engine().Step();
  QuietMs();
  for (int i = 0; i < 300; ++i) fixture_.engine().Step();  // it learns what few rows take
  longest_ms_ = 0;
  fixture_.engine().Step();
  EXPECT_DOUBLE_EQ(longest_ms_, executor_.StepMs(kPlaces));
}

}  // namespace
}  // namespace reprise
