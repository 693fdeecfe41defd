// SPDX-License-Identifier: Apache-2.0
#include "engine/audit/cold_snapkv.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/live_state.h"

namespace reprise {
namespace {

// One sequence, in as few steps as can be.
class ColdRun {
 public:
  ColdRun(Executor& executor, uint32_t space, const Adapter* adapter, int32_t adapted_from,
          std::span<const TokenId> tokens, float* logits)
      : executor_(executor),
        space_(space),
        adapter_(adapter),
        adapted_from_(adapted_from),
        tokens_(tokens),
        logits_(logits),
        lists_(StateLayout(executor.card().state).list_count()),
        state_(Live(executor, tokens)) {}

  int32_t position() const { return state_.extent(0).logical; }

  // Runs up to `end`; the last `window` rows are watched.
  void Run(int32_t end, int32_t window) {
    const Extent past = state_.extent(0);
    const auto rows = static_cast<uint32_t>(end - past.logical);
    SequenceSlice slice = state_.Next(0, 0, rows);
    slice.space = space_;
    slice.adapter = adapter_;
    slice.adapted_from = uint32_t(std::max(0, adapted_from_ - past.logical));
    std::vector<uint32_t> all(rows);
    std::iota(all.begin(), all.end(), 0u);
    uint8_t finite = 0;
    BatchView batch{tokens_.subspan(size_t(past.logical), rows), std::span(&slice, 1), all,
                    std::span(&finite, 1)};
    WatchedRows watched;
    if (window > 0) {
      const int64_t stride = past.physical + int64_t{rows};
      auto weights = executor_.memory().Allocate(lists_ * size_t(stride) * sizeof(float));
      CHECK(weights.ok());
      weights_ = std::move(*weights);
      watched = {0, rows - uint32_t(window), uint32_t(window), weights_.data().As<float>(), stride};
      batch.watched = std::span(&watched, 1);
    }
    float* const to = logits_ + size_t(past.logical) * size_t(executor_.card().vocab_size);
    CHECK(executor_.Forward(batch, state_.memory(), to).ok());
    state_.Advance(0, rows);
  }

  void Keep(int32_t kept, int32_t window) {
    const auto rows = static_cast<size_t>(state_.extent(0).physical);
    std::vector<float> weights(lists_ * rows);
    executor_.memory().DownloadArray<float>(weights, weights_.data().As<float>());
    std::vector<int32_t> lists(lists_ * size_t(kept));
    for (size_t list = 0; list < lists_; ++list) {
      ChooseKept(std::span(weights).subspan(list * rows, rows), window,
                 std::span(lists).subspan(list * size_t(kept), size_t(kept)));
    }
    const auto blocks = state_.blocks(0);
    CHECK(executor_.Keep({blocks, int32_t(rows), blocks, lists, kept}, state_.memory()).ok());
    state_.Keep(0, kept);
  }

 private:
  static LiveState Live(Executor& executor, std::span<const TokenId> tokens) {
    auto state =
        LiveState::Create(executor.card().state, 1, int64_t(tokens.size()), executor.memory());
    CHECK(state.ok());
    return std::move(*state);
  }

  Executor& executor_;
  const uint32_t space_;
  const Adapter* const adapter_;
  const int32_t adapted_from_;
  const std::span<const TokenId> tokens_;
  float* const logits_;
  const size_t lists_;
  LiveState state_;
  DeviceBuffer weights_;
};

}  // namespace

void RunColdSnapKv(Executor& executor, uint32_t space, std::span<const TokenId> tokens,
                   int32_t prompt_tokens, const SnapKv& options, float* logits,
                   const Adapter* adapter, int32_t adapted_from) {
  ColdRun run(executor, space, adapter, adapted_from, tokens, logits);
  const auto end = static_cast<int32_t>(tokens.size());
  const int32_t kept = KeptTokens(executor.card().state, options, prompt_tokens);
  if (kept < prompt_tokens) {
    const int32_t gap = std::max(options.redecode, options.window);
    for (int32_t at = prompt_tokens; at < end; at += gap) {
      run.Run(at, options.window);
      run.Keep(kept, options.window);
      if (options.redecode == 0) break;
    }
  }
  if (run.position() < end) run.Run(end, 0);
}

}  // namespace reprise
