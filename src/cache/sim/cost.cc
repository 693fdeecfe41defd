// SPDX-License-Identifier: Apache-2.0
#include "cache/sim/cost.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cache/index/state_index.h"

namespace reprise {
namespace {

std::vector<TokenId> MakeTokens(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(RandomAt(seed, i) % 150'000);
  return tokens;
}

CacheRequest RequestFor(const NamespaceKey& key, std::span<const TokenId> tokens) {
  CacheRequest request;
  request.key = &key;
  request.tokens = tokens;
  return request;
}

void Store(StateIndex& index, const NamespaceKey& key, std::span<const TokenId> tokens) {
  Lease lease = index.Acquire(RequestFor(key, tokens));
  CHECK(index.Start(lease).ok());
  const auto count = static_cast<int32_t>(tokens.size()) - index.record(lease).computed.logical;
  CHECK(index.Reserve(lease, count).ok());
  CHECK(index.Commit(lease, {count}).ok());
  index.Finish(std::move(lease));
  index.actions().clear();
}

}  // namespace

BookkeepingCost MeasureBookkeeping(const StateSpec& spec) {
  StateIndex::Options options;
  options.spec = spec;
  options.cache.budget_bytes = size_t{1} << 46;
  StateIndex index(std::move(options));
  const NamespaceKey key{"model", ""};
  const std::vector<TokenId> common = MakeTokens(1, 50'000);
  std::vector<TokenId> last;
  for (uint64_t i = 0; i < 10; ++i) {
    last = common;
    const std::vector<TokenId> rest = MakeTokens(100 + i, 50'000);
    last.insert(last.end(), rest.begin(), rest.end());
    Store(index, key, last);
  }
  for (uint64_t i = 0; i < 1000; ++i) Store(index, key, MakeTokens(1000 + i, 450));

  BookkeepingCost cost;
  const SteadyClock clock;
  int64_t least_ns = INT64_MAX;
  for (int i = 0; i < 50; ++i) {
    const int64_t begin = clock.NowNs();
    const Lease lease = index.Acquire(RequestFor(key, last));
    least_ns = std::min(least_ns, clock.NowNs() - begin);
  }
  const CacheStats stats = index.stats();
  cost.tokens_stored = stats.tokens_stored;
  cost.lookup_seconds = static_cast<double>(least_ns) * 1e-9;
  cost.metadata_share =
      static_cast<double>(stats.bytes_metadata) / static_cast<double>(stats.bytes_cached);
  return cost;
}

}  // namespace reprise
