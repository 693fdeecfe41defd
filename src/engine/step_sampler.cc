// SPDX-License-Identifier: Apache-2.0
#include "engine/step_sampler.h"

#include <atomic>

#include "device/thread_pool.h"

namespace reprise {

StepSampler::StepSampler(ThreadPool* pool)
    : pool_(pool), samplers_(pool == nullptr ? 1 : static_cast<size_t>(pool->size())) {}

std::vector<Result<Sampled>> StepSampler::Sample(std::span<const Row> rows) {
  std::vector<Result<Sampled>> results(rows.size(), Result<Sampled>(Sampled{}));
  std::atomic<size_t> next{0};
  const auto work = [&](int thread) {
    for (size_t i = next++; i < rows.size(); i = next++) {
      results[i] = samplers_[static_cast<size_t>(thread)].Sample(*rows[i].params, rows[i].input);
    }
  };
  if (pool_ == nullptr || rows.size() < 2) {
    work(0);
  } else {
    pool_->Run(work);
  }
  return results;
}

Sampled StepSampler::Score(std::span<const float> logits, int32_t token, int top) {
  return samplers_.front().Score(logits, token, top);
}

}  // namespace reprise
