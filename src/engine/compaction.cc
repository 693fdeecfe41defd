// SPDX-License-Identifier: Apache-2.0
#include "engine/compaction.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace reprise {

std::optional<Compaction> Compaction::Make(const StateSpec& spec, const SnapKv& options,
                                           int32_t prompt_tokens) {
  const int32_t kept = KeptTokens(spec, options, prompt_tokens);
  if (kept == prompt_tokens) return std::nullopt;
  return Compaction(options, prompt_tokens, kept, StateLayout(spec).list_count());
}

Result<std::optional<WatchedRows>> Compaction::Watch(Executor& executor, Extent past,
                                                     int32_t rows) {
  const int32_t begin = std::max(past.logical, at_ - options_.window);
  const int32_t end = past.logical + rows;
  CHECK(end <= at_);
  if (begin >= end) return std::optional<WatchedRows>();
  if (weights_.size() == 0) {
    CHECK(begin == at_ - options_.window);
    const size_t bytes = list_count_ * size_t(rows_) * sizeof(float);
    REPRISE_ASSIGN(weights_, executor.memory().Allocate(bytes));
  }
  WatchedRows watched;
  watched.row_begin = uint32_t(begin - past.logical);
  watched.row_count = uint32_t(end - begin);
  watched.weights = weights_.data().As<float>();
  watched.stride = rows_;
  return std::optional(watched);
}

const std::vector<int32_t>& Compaction::Lists(Executor& executor) {
  if (!lists_.empty()) return lists_;
  CHECK(weights_.size() > 0);
  std::vector<float> weights(list_count_ * size_t(rows_));
  executor.memory().DownloadArray<float>(weights, weights_.data().As<float>());
  weights_ = {};
  lists_.resize(list_count_ * size_t(kept_));
  const auto choose = [&](int64_t begin, int64_t end) {
    for (auto list = size_t(begin); list < size_t(end); ++list) {
      ChooseKept(std::span(weights).subspan(list * size_t(rows_), size_t(rows_)), options_.window,
                 std::span(lists_).subspan(list * size_t(kept_), size_t(kept_)));
    }
  };
  if (ThreadPool* pool = executor.pool()) {
    pool->ParallelFor(int64_t(list_count_), 1, choose);
  } else {
    choose(0, int64_t(list_count_));
  }
  return lists_;
}

int32_t Compaction::Next() const {
  if (options_.redecode == 0) return INT32_MAX;
  return at_ + std::max(options_.redecode, options_.window);
}

int32_t Compaction::RowsFrom(int32_t position) const {
  return (position < at_ ? at_ : Next()) - position;
}

void Compaction::Done() {
  lists_ = {};
  rows_ = kept_ + (Next() - at_);
  at_ = Next();
}

}  // namespace reprise
