// SPDX-License-Identifier: Apache-2.0
// Shares hold whatever tenants do: random schedules of up to 64 tenants with weights, pins, and
// requests that run at the same time.
//
// More schedules: REPRISE_SHARE_SCHEDULES=10000 cache_test --gtest_filter=Shares.*; from
// REPRISE_SHARE_FIRST on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <string>

#include "cache/index/index_fixture.h"

namespace reprise {
namespace {

constexpr double kTolerance = 0.05;
constexpr size_t kBytesPerWeight = size_t{16} << 20;  // entries take up to 256 KiB
constexpr int kRequestsPerTenant = 170;  // more than its share holds

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
uint64_t FirstSchedule() { return FromEnvironment("REPRISE_SHARE_FIRST", 0); }
uint64_t LastSchedule() { return FirstSchedule() + FromEnvironment("REPRISE_SHARE_SCHEDULES", 40); }

class Schedule {
 public:
  explicit Schedule(uint64_t seed)
      : rng_(seed),
        tenants_(TenantsOf(rng_)),
        weights_(WeightsOf(rng_, tenants_)),
        client_(OptionsFor(rng_, weights_)) {
    for (int i = 0; i < tenants_; ++i) {
      pins_.push_back(rng_.Below(2) == 0 ? 0 : static_cast<int>(rng_.Below(100)));
    }
  }

  // Random requests, then all tenants by turns. Returns what was wrong, or nothing.
  std::string Run() {
    for (int i = 0; i < tenants_ * kRequestsPerTenant && wrong_.empty(); ++i) {
      // Some ask much more often than others.
      const uint64_t one = rng_.Below(static_cast<uint64_t>(tenants_));
      Ask(static_cast<int>(rng_.Below(one + 1)));
    }
    while (!running_.empty()) FinishOldest();
    for (int round = 0; round < kRequestsPerTenant && wrong_.empty(); ++round) {
      for (int tenant = 0; tenant < tenants_; ++tenant) {
        for (int i = 0; i < weights_[size_t(tenant)]; ++i) Ask(tenant);
      }
    }
    while (!running_.empty()) FinishOldest();
    for (int tenant = 0; tenant < tenants_ && wrong_.empty(); ++tenant) {
      const auto [bytes, share] = client_.index.BytesAndShareOf(NameOf(tenant));
      if (double(bytes) < (1 - kTolerance) * double(share)) Fail(tenant, "at the end");
    }
    if (wrong_.empty()) wrong_ = client_.index.CheckInvariants().message();
    return wrong_;
  }

 private:
  static int TenantsOf(Rng& rng) {
    constexpr int kCounts[] = {2, 3, 4, 5, 8, 12, 24, 64};
    return kCounts[std::min(rng.Below(8), rng.Below(8))];
  }
  static std::vector<int32_t> WeightsOf(Rng& rng, int tenants) {
    std::vector<int32_t> weights;
    for (int i = 0; i < tenants; ++i) {
      weights.push_back(rng.Below(4) == 0 ? static_cast<int32_t>(1 + rng.Below(4)) : 1);
    }
    return weights;
  }
  static StateIndex::Options OptionsFor(Rng& rng, const std::vector<int32_t>& weights) {
    const uint64_t kind = rng.Below(3);
    StateIndex::Options options;
    options.spec = SpecOfKinds(kind != 1, 0, kind != 0);
    for (const int32_t weight : weights) {
      options.cache.budget_bytes += kBytesPerWeight * static_cast<size_t>(weight);
    }
    options.cache.sequence_count = 8;
    options.cache.context_tokens = 1024;
    options.ladder_share = 0;
    return options;
  }
  static std::string NameOf(int tenant) { return "t" + std::to_string(tenant); }

  void Fail(int tenant, const std::string& when) {
    const auto [bytes, share] = client_.index.BytesAndShareOf(NameOf(tenant));
    if (!wrong_.empty()) return;
    wrong_ = NameOf(tenant) + " of " + std::to_string(tenants_) + " has " +
             std::to_string(bytes >> 10) + " KiB of its share of " + std::to_string(share >> 10) +
             " " + when;
  }

  // A request of the tenant; two may run at the same time.
  void Ask(int tenant) {
    std::vector<size_t> before;
    for (int i = 0; i < tenants_; ++i) {
      before.push_back(client_.index.BytesAndShareOf(NameOf(i)).first);
    }
    client_.index.SetTime(now_ms_ += static_cast<int64_t>(rng_.Below(1000)));
    const NamespaceKey key{"model", NameOf(tenant)};
    CacheRequest request;
    request.key = &key;
    request.tenant = key.salt;
    request.tenant_weight = weights_[size_t(tenant)];
    if (int(rng_.Below(100)) < pins_[size_t(tenant)]) request.pin_ms = 3'600'000;
    // New prompts, and some that were there before.
    const uint64_t prompt = rng_.Below(8) == 0 ? rng_.Below(20) : 1000 + prompts_++;
    const auto tokens = RandomTokens(prompt, 64 + rng_.Below(64));
    running_.push_back({client_.Acquire(tokens, request), tenant});
    if (!client_.index.Start(running_.back().lease).ready()) {
      running_.pop_back();
    } else if (!client_.Compute(running_.back().lease).ok()) {
      wrong_ = "a request finds no room";
    }
    client_.index.actions().clear();
    while (running_.size() > rng_.Below(3)) FinishOldest();
    for (int other = 0; other < tenants_; ++other) {
      const auto [bytes, share] = client_.index.BytesAndShareOf(NameOf(other));
      const bool lost = bytes < before[size_t(other)];
      const bool below = double(bytes) < (1 - kTolerance) * double(share);
      if (other != tenant && lost && below) Fail(other, "after a request of " + NameOf(tenant));
    }
  }

  void FinishOldest() {
    client_.index.Finish(std::move(running_.front().lease));
    client_.index.actions().clear();
    running_.pop_front();
  }

  struct Running {
    Lease lease;
    int tenant = 0;
  };
  Rng rng_;
  const int tenants_;
  const std::vector<int32_t> weights_;
  IndexClient client_;
  std::vector<int> pins_;  // percent of their requests
  std::deque<Running> running_;
  std::string wrong_;
  int64_t now_ms_ = 0;
  uint64_t prompts_ = 0;
};

TEST(Shares, HoldInMemoryWithPinsUnderEverySchedule) {
  for (uint64_t seed = FirstSchedule(); seed < LastSchedule(); ++seed) {
    ASSERT_EQ(Schedule(seed).Run(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace reprise
