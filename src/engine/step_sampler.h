// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "sample/sampler.h"

namespace reprise {

class ThreadPool;

// Chooses the tokens of all sequences of a step, each row on whichever thread is free. A choice is
// a function of its row alone, so the number of threads changes nothing but the time.
//
// Thread safety: none; between forward passes the pool is the engine's.
class StepSampler {
 public:
  struct Row {
    const SamplingParams* params = nullptr;
    Sampler::Input input;
  };

  explicit StepSampler(ThreadPool* pool);  // null: the calling thread alone

  // One result for each row, in their order; until the next call, and free to be moved from.
  std::span<Result<Sampled>> Sample(std::span<const Row> rows);

  // As Sampler::Score, on the calling thread.
  Sampled Score(std::span<const float> logits, int32_t token, int top);

 private:
  ThreadPool* const pool_;
  std::vector<Sampler> samplers_;         // [threads]: each has memory of its own
  std::vector<Result<Sampled>> results_;  // as many as there were ever rows
};

}  // namespace reprise
