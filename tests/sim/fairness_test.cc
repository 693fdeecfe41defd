// SPDX-License-Identifier: Apache-2.0
// Who runs when, over thousands of seeded days with a model that computes nothing and a clock that
// it moves: in the middle of every step the order among those that wait and run must hold, and in
// the end everybody must have been served in good time.
//
// More seeds: REPRISE_SIM_SEEDS=1000000 build/dev/tests/fairness_test; from REPRISE_SIM_FIRST on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "cache/index/index_fixture.h"
#include "engine_fixture.h"
#include "paced_executor.h"

namespace reprise {
namespace {

constexpr uint64_t kSeeds = 20000;

constexpr double kClockMs = 1e-6;  // what the clock can tell apart

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// What happened in all days together: they must exercise what they are for.
struct Tally {
  uint64_t requests = 0;
  uint64_t preemptions = 0;
  uint64_t displaced = 0;
  uint64_t refused = 0;
  uint64_t waits = 0;      // steps in which somebody waited for another one's prefix
  uint64_t contended = 0;  // steps in which somebody waited for a place or memory
  uint64_t idle_steps = 0;
  uint64_t idle_beside_pins = 0;
  uint64_t evicted = 0;
  uint64_t long_prompts = 0;
};

class Day {
 public:
  Day(uint64_t seed, Tally* tally)
      : rng_(seed), tally_(tally), executor_(RandomKind(), RandomPace()) {
    const bool large = seed % 40 == 0;
    context_ = large ? 4096 + Between(0, 2048) : 512;
    cache_.context_tokens = context_;
    cache_.snapshot_gap = Between(1, 64);
    engine_.running_max = Between(1, 6);
    cache_.sequence_count = engine_.running_max + 1;
    engine_.waiting_max = Chance(30) ? Between(2, 6) : 64;
    engine_.scheduler.rows_max = Chance(20) ? Between(1, 16) : Between(16, 512);
    engine_.scheduler.chunk_rows_min = std::min(16, engine_.scheduler.rows_max);
    engine_.scheduler.gap_ms_max = Between(20, 400);
    tenants_ = Between(1, 3);
    const StateSpec& spec = executor_.card().state;
    cache_.budget_bytes = LeastBudget(spec, cache_);
    cache_.budget_bytes += cache_.budget_bytes * static_cast<size_t>(Between(0, 30)) / 10;
    fixture_.emplace(executor_, cache_, engine_);
    executor_.SetWatch(&fixture_->clock(), [this](const BatchView& batch) { Watch(batch); });
    if (seed % 2 == 0) executor_.ChooseOnDevice([this] { Arrive(); });
  }

  void Run() {
    const int count = Between(3, 14);
    for (int i = 0; i < count; ++i) {
      for (int pause = Chance(50) ? 0 : Between(1, 40); pause > 0; --pause) Step();
      // Between two steps, or where there is one that the device is at, in its middle.
      ++arriving_;
      if (Chance(50)) Arrive();
      for (const auto& live : live_) {
        if (live->request.max_tokens > 0 && Chance(2)) live->stream->Cancel();
      }
    }
    do Step();
    while (!AllDone() && step_ < 100000 && !testing::Test::HasFailure());
    for (int quiet = 0; quiet < 300; ++quiet) Step();  // idle work
    Judge();
  }

 private:
  struct Live {
    GenerateRequest request;
    std::shared_ptr<TokenStream> stream;
    int submitted = 0;
    int ended = -1;
    Completion completion;
  };

  bool Chance(uint64_t percent) { return rng_.Below(100) < percent; }
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(high - low + 1)));
  }
  PacedExecutor::Kind RandomKind() { return static_cast<PacedExecutor::Kind>(rng_.Below(4)); }
  PacedExecutor::Pace RandomPace() {
    return {static_cast<double>(Between(0, 30)), static_cast<double>(Between(1, 300)) / 10};
  }

  const Roster& roster() { return fixture_->engine().roster(); }

  void Arrive() {
    for (; arriving_ > 0; --arriving_) Submit();
  }

  void Submit() {
    GenerateRequest request;
    const int32_t prompt = context_ > 4000 && Chance(50)
                               ? Between(3000, context_ - 100)
                               : Between(1, std::min(context_ - 100, 400));
    // Few beginnings: prefixes are shared.
    Conversation talk(PacedExecutor::kVocab);
    if (Chance(60)) talk.Say(rng_.Below(3), prompt / 2 + 1);
    talk.Say(100 + rng_.Below(1000), prompt / 2 + 1);
    request = talk.Request(Chance(10) ? 0 : Between(1, 90));
    request.priority = Chance(30) ? Between(-1, 2) : 0;
    const int tenant = Between(1, tenants_);
    request.tenant = request.salt = "t" + std::to_string(tenant);
    request.tenant_weight = tenant;
    if (Chance(15)) request.pin_ms = int64_t{1} << 40;
    if (Chance(20)) {
      request.idle = true;
      request.max_tokens = 0;
    }
    tally_->long_prompts += prompt >= 3000 ? 1 : 0;
    auto stream = fixture_->engine().Submit(request);
    if (!stream.ok()) {
      EXPECT_EQ(stream.status().code(), StatusCode::kResourceExhausted);
      ++tally_->refused;
      return;
    }
    ++tally_->requests;
    live_.push_back(std::make_unique<Live>());
    live_.back()->request = request;
    live_.back()->stream = *stream;
    live_.back()->submitted = step_;
  }

  void Step() {
    alone_ = roster().running().empty() && roster().waiting().empty();
    pins_before_ = fixture_->cache().stats().entries_pinned;
    if (testing::Test::HasFailure()) return;
    fixture_->engine().Step();
    Arrive();
    ++step_;
    for (const auto& live : live_) {
      if (live->ended >= 0) continue;
      TokenStream::Update update = live->stream->Poll();
      if (!update.completion) continue;
      live->ended = step_;
      live->completion = *update.completion;
    }
  }

  bool AllDone() const {
    return std::all_of(live_.begin(), live_.end(),
                       [](const auto& live) { return live->request.idle || live->ended >= 0; });
  }

  // The middle of a step: who starts has started, who made way waits.
  void Watch(const BatchView& batch) {
    ASSERT_LE(roster().running().size(), static_cast<size_t>(engine_.running_max));
    if (roster().running().empty()) return WatchIdle(batch.tokens.size());
    ASSERT_LE(batch.sequences.size(), roster().running().size()) << "idle work runs only alone";
    CountTenants();
    for (const auto& waiting : roster().waiting()) {
      if (waiting->awaited) {
        awaited_.insert(waiting->arrival);
        ++tally_->waits;
        continue;
      }
      ++tally_->contended;
      for (const auto& running : roster().running()) WatchPair(*waiting, *running);
    }
  }

  void CountTenants() {
    running_of_.clear();
    std::map<std::string, int32_t> weights;
    for (const auto& one : roster().running()) {
      ++running_of_[one->request.tenant];
      weights[one->request.tenant] = one->request.tenant_weight;
    }
    for (const auto& one : roster().waiting()) {
      weights[one->request.tenant] = one->request.tenant_weight;
    }
    weights_ = 0;
    for (const auto& [name, weight] : weights) weights_ += weight;
  }

  int32_t Share(const Sequence& one) const {
    return std::max<int32_t>(1, static_cast<int32_t>(int64_t{engine_.running_max} *
                                                     one.request.tenant_weight / weights_));
  }

  void WatchPair(const Sequence& waiting, const Sequence& running) {
    const int32_t priority = std::max(running.lent_priority, running.request.priority);
    if (priority > running.request.priority) lent_.insert(running.arrival);
    ASSERT_GE(priority, waiting.request.priority)
        << "request " << waiting.arrival << " waits while " << running.arrival << " runs\n"
        << roster().Dump();
    if (priority > waiting.request.priority) return;
    const bool due = running_of_[waiting.request.tenant] < Share(waiting);
    const bool over = running_of_[running.request.tenant] > Share(running);
    ASSERT_FALSE(due && over) << "request " << waiting.arrival << " of tenant "
                              << waiting.request.tenant << " waits for its share while "
                              << running.arrival << " runs\n"
                              << roster().Dump();
    const bool equals = waiting.request.tenant == running.request.tenant &&
                        waiting.request.priority == running.request.priority;
    if (!equals || awaited_.contains(waiting.arrival) || lent_.contains(running.arrival)) return;
    ASSERT_LT(running.arrival, waiting.arrival) << "it came later and runs\n" << roster().Dump();
  }

  void WatchIdle(size_t rows) {
    ++tally_->idle_steps;
    ASSERT_TRUE(roster().waiting().empty()) << "idle work runs while a request waits";
    ASSERT_TRUE(rows == 1 || executor_.StepMs(rows) <= engine_.scheduler.gap_ms_max + kClockMs)
        << rows << " rows take " << executor_.StepMs(rows) - engine_.scheduler.gap_ms_max
        << " ms more than the gap";
    if (!alone_) return;
    tally_->idle_beside_pins += pins_before_ > 0 ? 1 : 0;
    ASSERT_GE(fixture_->cache().stats().entries_pinned, pins_before_) << "idle work took a pin";
  }

  // Everybody was served, nobody waited longer than all the work there was took.
  void Judge() {
    const int32_t chunk = std::max(1, std::min(16, engine_.scheduler.rows_max / 4));
    int64_t work = 50;
    int64_t grown = 0;
    for (const auto& live : live_) {
      if (live->ended < 0) continue;
      const int64_t returns = 1 + live->completion.preemptions;
      const auto tokens = static_cast<int64_t>(live->request.prompt.size());
      work +=
          returns * (2 + (tokens + live->request.max_tokens) / chunk) + live->request.max_tokens;
      grown += 2 + live->request.max_tokens / kBlockTokens;
    }
    for (size_t i = 0; i < live_.size(); ++i) {
      const Live& live = *live_[i];
      if (live.request.idle) continue;  // there may have been no time for it
      ASSERT_GE(live.ended, 0) << "request " << i << " never ended";
      ASSERT_LE(live.ended - live.submitted, work) << "request " << i;
      if (live.completion.reason != FinishReason::kFailed) continue;
      ASSERT_EQ(live.completion.status.code(), StatusCode::kResourceExhausted);
      ASSERT_EQ(live.completion.steps, 0)
          << "only one that never ran may be turned away: " << live.completion.status.message();
    }
    const EngineStats stats = fixture_->engine().stats();
    // Sent back for memory only as replies grow; for a priority or a share once for each start.
    ASSERT_LE(stats.preemptions, static_cast<uint64_t>(3 * grown));
    tally_->preemptions += stats.preemptions;
    tally_->displaced += stats.requests_displaced;
    for (const uint64_t count : stats.cache.blocks_evicted) tally_->evicted += count;
    for (const uint64_t count : stats.cache.snapshots_evicted) tally_->evicted += count;
    ASSERT_TRUE(fixture_->cache().CheckInvariants().ok());
  }

  Rng rng_;
  Tally* tally_;
  PacedExecutor executor_;
  int32_t context_ = 0;
  int32_t tenants_ = 1;
  CacheOptions cache_;
  EngineOptions engine_;
  std::optional<EngineFixture> fixture_;
  std::vector<std::unique_ptr<Live>> live_;
  std::map<std::string, int32_t> running_of_;
  int64_t weights_ = 1;
  std::set<uint64_t> awaited_;  // arrivals of those that ever waited for a prefix
  std::set<uint64_t> lent_;     // of those that were ever lent a priority
  int step_ = 0;
  int arriving_ = 0;  // requests that come as soon as they can
  bool alone_ = false;
  uint64_t pins_before_ = 0;
};

TEST(Fairness, EveryDayKeepsTheOrder) {
  Tally tally;
  const uint64_t first = FromEnvironment("REPRISE_SIM_FIRST", 0);
  const uint64_t seeds = FromEnvironment("REPRISE_SIM_SEEDS", kSeeds);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Day(seed, &tally).Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(tally.requests, seeds * 5);
  EXPECT_GT(tally.preemptions, seeds / 10);
  EXPECT_GT(tally.displaced, seeds / 200);
  EXPECT_GT(tally.refused, seeds / 100);
  EXPECT_GT(tally.waits, seeds / 10);
  EXPECT_GT(tally.contended, seeds);
  EXPECT_GT(tally.idle_steps, seeds);
  EXPECT_GT(tally.idle_beside_pins, seeds / 10);
  EXPECT_GT(tally.evicted, seeds / 4);
  EXPECT_GT(tally.long_prompts, seeds / 40);
}

// Tenants store prompts, one of them most. What the others have goes for his sake only as far as it
// is more than their share of what his request leaves.
TEST(Fairness, NobodyIsEvictedBelowHisShareOfTheCache) {
  constexpr size_t kEntryBytes = 600 << 10;  // what one eviction takes at most
  constexpr size_t kRunBytes = 1 << 20;      // what one request takes while it runs
  uint64_t evicted = 0;
  const uint64_t first = FromEnvironment("REPRISE_SIM_FIRST", 0);
  const uint64_t seeds = FromEnvironment("REPRISE_SIM_SEEDS", kSeeds);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    Rng rng(seed);
    const auto below = [&](uint64_t bound) { return static_cast<int32_t>(rng.Below(bound)); };
    const int kind = below(4);
    StateIndex::Options options;
    options.spec = SpecOfKinds(kind == 0 || kind == 1, kind == 2 ? 128 : 0, kind != 0 && kind != 2);
    options.cache.budget_bytes = static_cast<size_t>(3 + below(8)) << 20;
    options.ladder_share = 0;
    IndexClient client(std::move(options));
    const int32_t tenants = 2 + below(3);
    int32_t weights = 0;
    for (int32_t t = 0; t < tenants; ++t) weights += 1 + t;
    const auto bytes_of = [&](int32_t t) {
      return client.index.BytesAndShareOf("t" + std::to_string(t)).first;
    };
    for (int op = 0; op < 40; ++op) {
      const int32_t tenant = rng.Below(100) < 60 ? 0 : below(static_cast<uint64_t>(tenants));
      std::vector<size_t> before;
      for (int32_t t = 0; t < tenants; ++t) before.push_back(bytes_of(t));
      const std::string name = "t" + std::to_string(tenant);
      const NamespaceKey key{"model", name};
      CacheRequest request;
      request.key = &key;
      request.tenant = name;
      request.tenant_weight = 1 + tenant;
      client.index.SetTime(op);
      client.Run(RandomTokens(rng.Below(40), static_cast<size_t>(64 + below(330))), request);
      const size_t room = client.index.options().budget_bytes - kRunBytes;
      for (int32_t t = 0; t < tenants; ++t) {
        const size_t now = bytes_of(t);
        if (t == tenant || now >= before[static_cast<size_t>(t)]) continue;
        ++evicted;
        ASSERT_GE((now + kEntryBytes) * static_cast<size_t>(weights),
                  (room - room / 16) * static_cast<size_t>(1 + t))
            << "seed " << seed << ", tenant " << t;
      }
    }
    ASSERT_EQ(client.index.CheckInvariants().message(), "") << "seed " << seed;
  }
  EXPECT_GT(evicted, seeds);
}

}  // namespace
}  // namespace reprise
