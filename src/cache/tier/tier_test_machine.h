// SPDX-License-Identifier: Apache-2.0
// What tests of tiers share: a machine that computes state which can be checked, restarts, and
// keeps it in folders and in memory of the host.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cache/state_cache.h"
#include "cache/tier/host_tier.h"
#include "cache/tier/joined_tier.h"
#include "cache/tier/record_tier.h"
#include "device/raw.h"
#include "tensor/half.h"

namespace reprise {

inline constexpr int32_t kWindow = 100;

inline StateSpec SpecOf(bool full, bool window, bool recurrent) {
  StateSpec spec;
  spec.token_cost = 1000;
  if (full) spec.layers.push_back({0, StateKind::kFullKv, 0, {{"k", {16}, DType::kF32}}});
  if (window) spec.layers.push_back({1, StateKind::kWindowKv, kWindow, {{"k", {16}, DType::kF32}}});
  if (recurrent) spec.layers.push_back({2, StateKind::kRecurrent, 0, {{"s", {512}, DType::kF32}}});
  return spec;
}

// For tests of what takes time: it passes by hand.
class HandClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 1'000'000'000;
};

// A model whose state after tokens t0..tn is the fold x -> x * 0.5 + t: a K row holds it at its
// position, the recurrent state now. A process is what there is between Begin and End.
class Machine {
 public:
  explicit Machine(StateSpec spec) : spec_(std::move(spec)) {
    disk.path = testing::TempDir() + "tiers";
    disk.bytes_max = 64 << 20;
    disk.retry_ms = 0;
    disk.sync = false;
    std::filesystem::remove_all(disk.path);
    options.budget_bytes = 16 << 20;
    options.context_tokens = 2048;
    options.sequence_count = 4;
    options.snapshot_gap = 16;
  }

  void Begin() {
    cache.reset();
    auto made = StateCache::Create(spec_, options, *device);
    ASSERT_TRUE(made.ok()) << made.status().message();
    cache = std::move(*made);
    std::unique_ptr<Tier> tiers;
    if (open_store) {
      Put(std::make_unique<RecordTier>(open_store(), StatePacking(), *clock), &tiers);
    }
    for (const DiskOptions* folder : {&far, &disk}) {
      if (folder->path.empty()) continue;
      auto store = RecordStore::Open(*folder, state_keys);
      ASSERT_TRUE(store.ok()) << store.status().message();
      const StatePacking packing = rounds ? StatePacking::Rounded(spec_) : StatePacking();
      Put(std::make_unique<RecordTier>(std::move(*store), packing, *clock), &tiers);
    }
    if (host_bytes > 0) {
      auto host = HostTier::Make(*cache->memory().layout, host_bytes, *device, *clock);
      ASSERT_TRUE(host.ok()) << host.status().message();
      Put(std::move(*host), &tiers);
    }
    cache->AttachTier(std::move(tiers));
  }
  // Idle time, until everything is on the disk.
  void Rest() {
    for (int quiet = 0; quiet < 3; ++quiet) {
      cache->SetTime(++now_);
      if (cache->Maintain() || cache->moves_under_way() > 0) quiet = -1;
      std::this_thread::yield();
    }
  }

  // A step of a server that is at work.
  void Step() {
    cache->SetTime(++now_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // One request with its reply. Returns its report; everything it reads must be right.
  ReuseReport Run(const std::vector<TokenId>& prompt, const std::vector<TokenId>& reply = {},
                  CacheRequest request = {}) {
    request.key = &key;
    request.tokens = prompt;
    cache->SetTime(++now_);
    Lease lease = cache->Acquire(request);
    StartAnswer answer = cache->Start(lease);
    while (answer.pending()) {
      std::this_thread::yield();
      cache->SetTime(++now_);
      if (!cache->FindAwaited(lease)) answer = cache->Start(lease);
    }
    EXPECT_TRUE(answer.ready()) << answer.status.message();
    if (!answer.ready()) return {};
    Compute(lease);
    if (!reply.empty()) {
      cache->Append(lease, reply);
      Compute(lease);
    }
    return cache->Finish(std::move(lease));
  }

  CacheOptions options;
  std::function<std::unique_ptr<RecordStore>()> open_store;  // below all; null: none
  DiskOptions disk;                                          // if it has a path
  DiskOptions far;                                           // below the disk, the same
  size_t host_bytes = 0;                                     // above the disk, if there are any
  bool rounds = false;                                       // what goes to the folders
  DeviceMemory* device = &HostMemory();
  const Clock* clock = &TheSteadyClock();
  StateKeys state_keys;
  NamespaceKey key{"model", "tenant"};
  std::unique_ptr<StateCache> cache;
  int rounded_seen = 0;  // requests that began so

 private:
  static void Put(std::unique_ptr<Tier> near, std::unique_ptr<Tier>* far) {
    *far = *far ? std::make_unique<JoinedTier>(std::move(near), std::move(*far)) : std::move(near);
  }

  float* Row(const Lease& lease, int32_t p, size_t layer_state) const {
    const StateMemory& memory = cache->memory();
    auto* block = Raw(memory.block(lease.blocks()[size_t(p / kBlockTokens)]).As<float>());
    return block + memory.layout->offset(layer_state, 0) / sizeof(float) + (p % kBlockTokens) * 16;
  }
  float* State(StateId id) const { return Raw(cache->memory().state(id).As<float>()); }

  void Compute(Lease& lease) {
    std::vector<float> folds = {0};
    for (const TokenId t : lease.tokens()) {
      folds.push_back(folds.back() * 0.5f + static_cast<float>(t));
    }
    const bool recurrent = spec_.has_recurrent();
    const size_t kv = spec_.layers.size() - (recurrent ? 1 : 0);
    const bool all = spec_.bytes_per_token(StateKind::kFullKv) > 0;
    while (lease.computed() < static_cast<int32_t>(lease.tokens().size())) {
      const int32_t begin = lease.computed();
      const int32_t end = std::min(begin + 150, static_cast<int32_t>(lease.tokens().size()));
      ASSERT_TRUE(cache->Reserve(lease, end - begin).ok());
      for (size_t layer_state = 0; layer_state < kv; ++layer_state) {
        for (int32_t p = all ? 0 : std::max(0, begin - kWindow + 1); p < begin; ++p) {
          ASSERT_EQ(*Row(lease, p, layer_state), folds[size_t(p) + 1]) << p << " of " << begin;
        }
        for (int32_t p = begin; p < end; ++p) {
          std::fill_n(Row(lease, p, layer_state), 16, folds[size_t(p) + 1]);
        }
      }
      if (recurrent) {
        const float want = folds[size_t(begin)];
        const size_t floats = cache->memory().layout->state_bytes() / sizeof(float);
        const bool rounded = rounds && State(lease.state())[0] != want;
        const float stored = rounded ? BF16ToF32(F32ToBF16(want)) : want;
        for (size_t i = 0; i < floats; ++i) ASSERT_EQ(State(lease.state())[i], stored) << i;
        rounded_seen += rounded;
        for (const PendingSnapshot& one : lease.pending()) {
          std::fill_n(State(one.state), floats, folds[size_t(one.position)]);
        }
        std::fill_n(State(lease.state()), floats, folds[size_t(end)]);
      }
      ASSERT_TRUE(cache->Commit(lease, {end - begin}).ok());
    }
  }

  StateSpec spec_;
  int64_t now_ = 0;
};

inline std::vector<TokenId> Tokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(RandomAt(seed, i) % 50);
  return tokens;
}

inline std::vector<TokenId> Join(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Requests that begin as earlier ones did, up to a random place.
class RandomTalk {
 public:
  explicit RandomTalk(uint64_t seed) : past_{Tokens(seed, 100)} {}

  // Runs the next one, with its reply.
  void Turn(Rng& rng, Machine& machine) {
    auto prompt = past_[rng.Below(past_.size())];
    prompt.resize(1 + rng.Below(prompt.size()));
    prompt = Join(prompt, Tokens(rng.Next(), 1 + rng.Below(200)));
    if (prompt.size() > 1500) prompt.resize(1500);
    const auto reply = Tokens(rng.Next(), rng.Below(100));
    machine.Run(prompt, reply);
    past_.push_back(Join(prompt, reply));
    if (past_.size() > 12) past_.erase(past_.begin());
  }

 private:
  std::vector<std::vector<TokenId>> past_;
};

}  // namespace reprise
