// SPDX-License-Identifier: Apache-2.0
#include "engine/step_sampler.h"

#include <atomic>

#include "device/thread_pool.h"
#include "engine/near.h"

namespace reprise {

StepSampler::StepSampler(ThreadPool* pool)
    : pool_(pool), samplers_(pool == nullptr ? 1 : static_cast<size_t>(pool->size())) {}

std::span<Result<Sampled>> StepSampler::Sample(std::span<const Row> rows) {
  while (results_.size() < rows.size()) results_.emplace_back(Sampled{});
  const auto choose = [&](size_t i, Sampler& sampler) {
    results_[i] = sampler.Sample(*rows[i].params, rows[i].input);
  };
  if (pool_ == nullptr || rows.size() < 2) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kNear < rows.size()) __builtin_prefetch(rows[i + kNear].params);
      choose(i, samplers_.front());
    }
  } else {
    std::atomic<size_t> next{0};
    pool_->Run([&](int thread) {
      for (size_t i = next++; i < rows.size(); i = next++) {
        choose(i, samplers_[static_cast<size_t>(thread)]);
      }
    });
  }
  return std::span(results_).first(rows.size());
}

Sampled StepSampler::Score(std::span<const float> logits, int32_t token, int top) {
  return samplers_.front().Score(logits, token, top);
}

}  // namespace reprise
