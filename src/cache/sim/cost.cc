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
  CHECK(index.Start(lease).ready());
  const auto count = static_cast<int32_t>(tokens.size()) - index.record(lease).computed.logical;
  CHECK(index.Reserve(lease, count).ok());
  CHECK(index.Commit(lease, {count}).ok());
  index.Finish(std::move(lease));
  index.actions().clear();
}

// The server of MeasureStep, without its model.
class Steps {
 public:
  Steps(const StateSpec& spec, const StepLoad& load) : index_(OptionsFor(spec)) {
    for (int i = 0; i < load.entries; ++i) Store(index_, key_, MakeTokens(uint64_t(i) + 1000, 16));
    for (int i = 0; i < load.running; ++i) {
      const auto prompt = MakeTokens(2'000'000 + uint64_t(i), 64 + size_t(i) % 64);
      running_.push_back(index_.Acquire(RequestFor(key_, prompt)));
      CHECK(index_.Start(running_.back()).ready());
      Compute(running_.back(),
              int32_t(prompt.size()) - index_.record(running_.back()).computed.logical);
    }
    const auto document = MakeTokens(1, size_t(load.prompt_tokens));
    reader_ = index_.Acquire(RequestFor(key_, document));
    CHECK(index_.Start(reader_).ready());
    for (int i = 0; i < load.waiting; ++i) {
      auto question = document;
      for (const TokenId token : MakeTokens(3'000'000 + uint64_t(i), 64)) question.push_back(token);
      waiting_.push_back(index_.Acquire(RequestFor(key_, question)));
    }
  }

  // One step: everybody who waits asks for whom, everybody who runs has a row.
  void Run(int32_t rows) {
    index_.SetTime(++now_ms_);
    for (const Lease& lease : waiting_) awaiting_ += index_.FindAwaited(lease) ? 1 : 0;
    for (const Lease& lease : running_) {
      const TokenId next = static_cast<TokenId>(now_ms_ % 1000);
      index_.Append(lease, {&next, 1});
      Compute(lease, 1);
    }
    Compute(reader_, rows);
  }
  int32_t left() const {
    const LeaseRecord& record = index_.record(reader_);
    return record.prompt_tokens - record.computed.logical;
  }
  void View() { CHECK(!index_.View(key_, 200, {}).empty()); }
  size_t awaiting() const { return awaiting_; }

 private:
  static StateIndex::Options OptionsFor(const StateSpec& spec) {
    StateIndex::Options options;
    options.spec = spec;
    options.cache.budget_bytes = size_t{1} << 46;
    options.cache.sequence_count = 4096;
    return options;
  }
  void Compute(const Lease& lease, int32_t rows) {
    CHECK(index_.Reserve(lease, rows).ok());
    CHECK(index_.Commit(lease, {rows}).ok());
    index_.actions().clear();
  }

  StateIndex index_;
  const NamespaceKey key_{"model", ""};
  std::vector<Lease> running_, waiting_;
  Lease reader_;
  int64_t now_ms_ = 0;
  size_t awaiting_ = 0;
};

}  // namespace

StepCost MeasureStep(const StateSpec& spec, const StepLoad& load) {
  constexpr int32_t kRows = 512;
  Steps steps(spec, load);
  steps.Run(kRows);  // whoever waits compares its prompt with the reader's, once
  CHECK(steps.awaiting() == size_t(load.waiting));
  const auto timed = [](const auto& work) {
    const double begin = ThreadSeconds();
    work();
    return ThreadSeconds() - begin;
  };
  StepCost cost;
  std::vector<double> seconds;
  while (steps.left() > kRows) seconds.push_back(timed([&] { steps.Run(kRows); }));
  steps.Run(steps.left());
  cost.landing_seconds = timed([&] { steps.Run(0); });
  cost.view_seconds = timed([&] { steps.View(); });
  std::sort(seconds.begin(), seconds.end());
  cost.median_seconds = seconds[seconds.size() / 2];
  cost.worst_seconds = seconds.back();
  return cost;
}

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
