// SPDX-License-Identifier: Apache-2.0
// What tests of the index share: specs of each kind of state, prompts, and a client that runs
// requests on ids alone.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cache/index/state_index.h"

namespace reprise {

inline StateSpec SpecOfKinds(bool full, int window, bool recurrent) {
  // 64 KiB for 64 tokens of K/V, 128 KiB for a state.
  StateSpec spec;
  spec.token_cost = 1000;
  spec.token_cost_per_position = 1;
  const StateTensor kv{"kv", {256}, DType::kF32};
  if (full) spec.layers.push_back({0, StateKind::kFullKv, 0, {kv}});
  if (window > 0) spec.layers.push_back({1, StateKind::kWindowKv, window, {kv}});
  if (recurrent) {
    spec.layers.push_back({2, StateKind::kRecurrent, 0, {{"s", {128, 256}, DType::kF32}}});
  }
  return spec;
}

inline std::vector<TokenId> RandomTokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(RandomAt(seed, i) % 50'000);
  return tokens;
}

// One client of an index: prompts in, leases through their life, actions thrown away.
class IndexClient {
 public:
  explicit IndexClient(StateIndex::Options options) : index(std::move(options)) {}

  Lease Acquire(std::span<const TokenId> tokens, CacheRequest request = {}) {
    request.key = request.key != nullptr ? request.key : &key;
    request.tokens = tokens;
    return index.Acquire(request);
  }

  // Computes what is left of the tokens, in steps of at most `rows`.
  Status Compute(const Lease& lease, int32_t rows = 512) {
    const LeaseRecord& record = index.record(lease);
    while (record.computed.logical < static_cast<int32_t>(record.tokens.size())) {
      const auto left = static_cast<int32_t>(record.tokens.size()) - record.computed.logical;
      const int32_t count = std::min(rows, left);
      REPRISE_TRY(index.Reserve(lease, count));
      REPRISE_TRY(index.Commit(lease, {count}));
      index.actions().clear();
    }
    return OkStatus();
  }

  // The whole life of a request. Returns its report.
  ReuseReport Run(std::span<const TokenId> tokens, const CacheRequest& request = {},
                  std::span<const TokenId> reply = {}) {
    Lease lease = Acquire(tokens, request);
    EXPECT_TRUE(index.Start(lease).ready());
    EXPECT_TRUE(Compute(lease).ok());
    if (!reply.empty()) {
      index.Append(lease, reply);
      EXPECT_TRUE(Compute(lease).ok());
    }
    const ReuseReport report = index.Finish(std::move(lease));
    index.actions().clear();
    return report;
  }

  // What a request with this prompt would start from now.
  int32_t Reusable(std::span<const TokenId> tokens, const CacheRequest& request = {}) {
    return index.record(Acquire(tokens, request)).report.used_tokens;
  }

  NamespaceKey key{"model", "tenant"};
  StateIndex index;
};

}  // namespace reprise
