// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/fit.h"

#include <algorithm>
#include <limits>

#include "cache/cache_options.h"

namespace reprise::cli {
namespace {

constexpr int64_t kContextMax = 1 << 24;  // as --context
constexpr int64_t kRequestTokens = 8192;  // of a long chat
constexpr int64_t kRequestsMax = 1'000'000;

size_t BytesFor(const StateSpec& state, int64_t context) {
  CacheOptions options;
  options.context_tokens = static_cast<int32_t>(context);
  return LeastBudget(state, options);
}

// The longest context of which one request fits, by halving: what it takes grows with it.
int64_t LongestContext(const StateSpec& state, int64_t most, size_t budget) {
  int64_t fits = 0, too_long = most + 1;
  while (fits + 1 < too_long) {
    const int64_t middle = fits + (too_long - fits) / 2;
    (BytesFor(state, middle) <= budget ? fits : too_long) = middle;
  }
  return fits;
}

}  // namespace

Fit FindFit(const ModelOutline& model, uint64_t memory_bytes, double gigabytes_per_second) {
  const StateSpec& state = model.card.state;
  Fit fit;
  fit.bytes_per_token =
      state.bytes_per_token(StateKind::kFullKv) + state.bytes_per_token(StateKind::kWindowKv);
  fit.bytes_per_sequence = state.state_bytes();
  if (gigabytes_per_second > 0) {
    // State is written, too; K/V of a short conversation is nothing beside the weights.
    const double bytes = double(model.step_bytes) + 2 * double(fit.bytes_per_sequence);
    fit.tokens_per_second = bytes > 0 ? gigabytes_per_second * 1e9 / bytes : 0;
  }
  fit.weights = model.weight_bytes <= memory_bytes;
  if (!fit.weights) return fit;
  // As DefaultBudget: a quarter is left for steps and for everything else.
  const uint64_t free =
      std::min<uint64_t>(memory_bytes - model.weight_bytes, std::numeric_limits<int64_t>::max());
  const auto budget = static_cast<size_t>(free / 4 * 3);
  const int64_t most = std::clamp<int64_t>(model.card.context_length, 1, kContextMax);
  fit.context = LongestContext(state, most, budget);
  fit.request_tokens = std::min(fit.context, kRequestTokens);
  if (fit.context == 0) return fit;
  const size_t each = std::max<size_t>(1, BytesFor(state, fit.request_tokens));
  fit.requests = std::clamp<int64_t>(int64_t(budget / each), 1, kRequestsMax);
  return fit;
}

}  // namespace reprise::cli
