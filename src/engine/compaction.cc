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

void Compaction::Choice::Run() {
  for (size_t list = 0; list < list_count; ++list) {
    ChooseKept(std::span(weights.get() + list * rows, rows), window,
               std::span(lists).subspan(list * kept, kept));
  }
  weights.reset();
  done = true;
}

void Compaction::Choose(Executor& executor, Background* background) {
  if (begun()) return;
  CHECK(weights_.size() > 0);
  choice_ = std::make_shared<Choice>();
  choice_->list_count = list_count_;
  choice_->rows = size_t(rows_);
  choice_->kept = size_t(kept_);
  choice_->window = options_.window;
  choice_->lists.resize(list_count_ * size_t(kept_));
  const size_t count = list_count_ * size_t(rows_);
  choice_->weights = std::make_unique_for_overwrite<float[]>(count);
  executor.memory().DownloadArray<float>(std::span(choice_->weights.get(), count),
                                         weights_.data().As<float>());
  weights_ = {};
  if (background != nullptr && executor.pool() != nullptr) {
    background->Post([choice = choice_] { choice->Run(); });
  } else {
    choice_->Run();
  }
}

int32_t Compaction::Next() const {
  if (options_.redecode == 0) return INT32_MAX;
  return at_ + std::max(options_.redecode, options_.window);
}

int32_t Compaction::RowsFrom(int32_t position) const {
  return (position < at_ ? at_ : Next()) - position;
}

void Compaction::Done() {
  choice_.reset();
  rows_ = kept_ + (Next() - at_);
  at_ = Next();
}

}  // namespace reprise
