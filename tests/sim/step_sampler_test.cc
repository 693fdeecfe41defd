// SPDX-License-Identifier: Apache-2.0
// Proves that the tokens of a step are those that a lone sampler chooses row by row, whatever the
// number of threads.
#include "engine/step_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"
#include "device/thread_pool.h"

namespace reprise {
namespace {

TEST(StepSampler, ThreadsChangeNoChoice) {
  constexpr size_t kRows = 40;
  constexpr size_t kVocab = 500;
  std::vector<float> logits(kRows * kVocab);
  Rng rng(7);
  for (float& logit : logits) logit = static_cast<float>(rng.Below(1000)) / 100;
  logits[3 * kVocab] = std::numeric_limits<float>::infinity();
  std::vector<SamplingParams> params(kRows);
  std::vector<TokenCounts> said(kRows);
  TokenMask even(kVocab, false);
  for (int32_t token = 0; token < static_cast<int32_t>(kVocab); token += 2) even.Allow(token);
  std::vector<StepSampler::Row> rows;
  for (size_t i = 0; i < kRows; ++i) {
    params[i] = {.temperature = i % 4 == 0 ? 0.0f : 1.0f,
                 .top_p = i % 2 == 0 ? 0.9f : 1.0f,
                 .repetition_penalty = i % 3 == 0 ? 1.5f : 1.0f,
                 .seed = i};
    for (int token = 0; token < 50; ++token) {
      said[i].AddGenerated(static_cast<int32_t>(rng.Below(kVocab)));
    }
    rows.push_back({&params[i],
                    {.logits = std::span(logits).subspan(i * kVocab, kVocab),
                     .said = &said[i],
                     .position = 10 * i,
                     .allowed = i % 5 == 0 ? &even : nullptr,
                     .logprobs = i % 7 == 0 ? 3 : -1}});
  }
  Sampler lone;
  for (const int threads : {0, 1, 2, 5}) {
    ThreadPool pool(std::max(1, threads));
    StepSampler sampler(threads == 0 ? nullptr : &pool);
    for (int step = 0; step < 20; ++step) {
      const auto sampled = sampler.Sample(rows);
      ASSERT_EQ(sampled.size(), kRows);
      for (size_t i = 0; i < kRows; ++i) {
        const auto expected = lone.Sample(params[i], rows[i].input);
        ASSERT_EQ(sampled[i].ok(), i != 3) << "a broken row fails alone";
        if (i == 3) continue;
        ASSERT_EQ(sampled[i]->chosen.token, expected->chosen.token) << "row " << i;
        ASSERT_EQ(sampled[i]->chosen.logprob, expected->chosen.logprob);
        ASSERT_EQ(sampled[i]->top.size(), expected->top.size());
      }
    }
  }
}

}  // namespace
}  // namespace reprise
