// SPDX-License-Identifier: Apache-2.0
// Proves the promise of LeastBudget: a request that runs alone is never refused, whatever came
// before it. Prompts branch everywhere, inside blocks too, are pinned, cancelled, read without
// being written and written without being read; then some go on, token by token, until the context
// is full. Blocks and states are small beside the bookkeeping, or large.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cache/index/state_index.h"

namespace reprise {
namespace {

struct Case {
  const char* name;
  bool full;
  int32_t window;
  bool recurrent;
  int64_t values;  // of K/V for each token; 64 times as many in a state
};

StateSpec SpecOf(const Case& c) {
  StateSpec spec;
  spec.token_cost = 1000;
  spec.token_cost_per_position = 1;
  const StateTensor kv{"kv", {c.values}, DType::kF16};
  if (c.full) spec.layers.push_back({0, StateKind::kFullKv, 0, {kv}});
  if (c.window > 0) spec.layers.push_back({1, StateKind::kWindowKv, c.window, {kv}});
  if (c.recurrent) {
    spec.layers.push_back({2, StateKind::kRecurrent, 0, {{"s", {64, c.values}, DType::kF16}}});
  }
  return spec;
}

// One request after another on one index of the least budget.
class Requests {
 public:
  Requests(const Case& c, int32_t context, uint64_t seed) : context_(context), rng_(seed) {
    StateIndex::Options options;
    options.spec = SpecOf(c);
    options.cache.context_tokens = context;
    options.cache.budget_bytes = LeastBudget(options.spec, options.cache);
    options.cache.snapshot_gap = 1 + static_cast<int32_t>(rng_.Below(64));
    index_ = std::make_unique<StateIndex>(std::move(options));
    if (seed % 2 == 0) index_->Announce();
  }

  Status RunOne() {
    index_->SetTime(now_ms_ += static_cast<int64_t>(rng_.Below(50)));
    const NamespaceKey key{"m", rng_.Below(8) == 0 ? "other" : ""};
    const std::vector<TokenId> prompt = RandomPrompt();
    const auto size = static_cast<int32_t>(prompt.size());
    const Boundary boundaries[] = {{size / 3, BoundaryKind::kSystem},
                                   {size / 2, BoundaryKind::kBreakpoint},
                                   {size - 1, BoundaryKind::kMessage}};
    CacheRequest request;
    request.key = &key;
    request.tokens = prompt;
    request.boundaries = boundaries;
    if (rng_.Below(7) == 0) request.pin_ms = 500;
    if (rng_.Below(10) == 0) request.min_cache_tokens = 40;
    request.read = rng_.Below(10) != 0;
    request.write = rng_.Below(10) != 0;
    Lease lease = index_->Acquire(request);
    REPRISE_TRY(index_->Start(lease).status);
    const bool fills = rng_.Below(40) == 0;
    REPRISE_TRY(RunTo(lease, fills ? context_ : size + int32_t(rng_.Below(20))));
    past_.push_back(index_->record(lease).tokens);
    if (past_.size() > 30) past_.erase(past_.begin() + rng_.Below(past_.size()));
    if (rng_.Below(6) != 0) index_->Finish(std::move(lease));
    index_->actions().clear();
    (void)index_->TakeBlockEvents();
    return OkStatus();
  }

  const StateIndex& index() const { return *index_; }

 private:
  std::vector<TokenId> RandomPrompt() {
    std::vector<TokenId> prompt;
    if (!past_.empty() && rng_.Below(5) != 0) {
      prompt = past_[rng_.Below(past_.size())];
      if (rng_.Below(3) != 0) prompt.resize(1 + rng_.Below(prompt.size()));
    }
    const bool is_long = rng_.Below(10) == 0;
    const size_t fresh = 1 + rng_.Below(is_long ? uint64_t(context_) : 40);
    const uint64_t vocabulary = rng_.Below(2) == 0 ? 3 : 1000;
    for (size_t i = 0; i < fresh; ++i) prompt.push_back(TokenId(rng_.Below(vocabulary)));
    prompt.resize(std::min(prompt.size(), static_cast<size_t>(context_)));
    return prompt;
  }

  Status RunTo(const Lease& lease, int32_t end) {
    const LeaseRecord& record = index_->record(lease);
    const uint64_t step = rng_.Below(2) == 0 ? 16 : 500;
    end = std::min(end, context_);
    while (record.computed.logical < end) {
      const auto known = static_cast<int32_t>(record.tokens.size());
      const int32_t count =
          std::min(1 + int32_t(rng_.Below(step)), known - record.computed.logical);
      REPRISE_TRY(index_->Reserve(lease, count));
      REPRISE_TRY(index_->Commit(lease, {count}));
      index_->actions().clear();
      const TokenId next = static_cast<TokenId>(rng_.Below(3));
      if (record.computed.logical == known && known < end) index_->Append(lease, {&next, 1});
    }
    return OkStatus();
  }

  const int32_t context_;
  Rng rng_;
  std::unique_ptr<StateIndex> index_;
  std::vector<std::vector<TokenId>> past_;
  int64_t now_ms_ = 0;
};

class LoneRequest : public testing::TestWithParam<Case> {};

TEST_P(LoneRequest, IsNeverRefused) {
  constexpr int kRequests = 1000;
  for (const int32_t context : {1, 64, 130, 500, 4096}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      Requests requests(GetParam(), context, seed);
      const StateIndex& index = requests.index();
      for (int i = 0; i < kRequests; ++i) {
        const Status status = requests.RunOne();
        ASSERT_TRUE(status.ok()) << status.message() << "\nrequest " << i << " of seed " << seed
                                 << ", context " << context << ", metadata "
                                 << index.bytes_metadata() << ", used " << index.bytes_used()
                                 << " of " << index.options().budget_bytes << " bytes\n"
                                 << index.Dump();
        ASSERT_LE(index.bytes_used(), index.options().budget_bytes);
        if (i % 64 == 0) {
          const Status sound = index.CheckInvariants();
          ASSERT_TRUE(sound.ok()) << sound.message();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LoneRequest,
                         testing::Values(Case{"full_small", true, 0, false, 8},
                                         Case{"full_large", true, 0, false, 1 << 15},
                                         Case{"full_and_window_large", true, 9, false, 1 << 15},
                                         Case{"window_small", false, 70, false, 8},
                                         Case{"window_large", false, 70, false, 1 << 15},
                                         Case{"hybrid_small", true, 0, true, 8},
                                         Case{"hybrid_large", true, 0, true, 1 << 15},
                                         Case{"window_recurrent_large", false, 70, true, 1 << 15},
                                         Case{"recurrent_small", false, 0, true, 8},
                                         Case{"recurrent_large", false, 0, true, 1 << 15}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace reprise
