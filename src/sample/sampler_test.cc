// SPDX-License-Identifier: Apache-2.0
// Proves each filter on distributions small enough to know the answer, and that draws follow the
// distribution, are those of a plain sort of all tokens, and depend on (seed, position) alone.
#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "kernels/reference/math.h"

namespace reprise {
namespace {

// The last `generated` tokens of the history were generated.
TokenCounts Count(std::span<const int32_t> history, size_t generated) {
  TokenCounts said;
  said.AddPrompt(history.first(history.size() - generated));
  for (const int32_t token : history.last(generated)) said.AddGenerated(token);
  return said;
}

int32_t Choose(const SamplingParams& params, std::span<const float> logits, uint64_t position = 0,
               std::span<const int32_t> history = {}, size_t generated = 0) {
  const TokenCounts said = Count(history, generated);
  Sampler sampler;
  auto sampled = sampler.Sample(params, {.logits = logits, .said = &said, .position = position});
  EXPECT_TRUE(sampled.ok());
  return sampled->chosen.token;
}

// How often each token is drawn in `count` positions.
std::vector<int> Draws(const SamplingParams& params, std::span<const float> logits, int count) {
  std::vector<int> draws(logits.size(), 0);
  for (int i = 0; i < count; ++i) {
    ++draws[static_cast<size_t>(Choose(params, logits, static_cast<uint64_t>(i)))];
  }
  return draws;
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  SamplingParams greedy;
  greedy.temperature = 0;
  EXPECT_EQ(Choose(greedy, std::array{0.0f, 3.0f, 3.0f, 1.0f}), 1);
  greedy.logit_bias = {{3, 5.0f}};
  EXPECT_EQ(Choose(greedy, std::array{0.0f, 3.0f, 3.0f, 1.0f}), 3);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::array logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  const auto draws = Draws(SamplingParams{}, logits, 20000);
  EXPECT_NEAR(draws[0], 10000, 300);
  EXPECT_NEAR(draws[1], 6000, 300);
  EXPECT_NEAR(draws[2], 4000, 300);
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  const std::array logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto drawn = [&](const SamplingParams& params) {
    int mask = 0;
    for (int i = 0; const int count : Draws(params, logits, 500)) mask |= (count > 0) << i++;
    return mask;
  };
  EXPECT_EQ(drawn({}), 0b1111);
  EXPECT_EQ(drawn({.top_k = 2}), 0b0011);
  EXPECT_EQ(drawn({.top_p = 0.79f}), 0b0011);
  EXPECT_EQ(drawn({.top_p = 0.81f}), 0b0111);
  EXPECT_EQ(drawn({.top_p = 0.0f}), 0b0001);
  EXPECT_EQ(drawn({.min_p = 0.29f}), 0b0111);
  EXPECT_EQ(drawn({.min_p = 0.31f}), 0b0011);
}

// Which of four tokens may be drawn.
int Drawn(const SamplingParams& params, std::span<const float> logits) {
  int mask = 0;
  for (int i = 0; const int count : Draws(params, logits, 500)) mask |= (count > 0) << i++;
  return mask;
}

TEST(Sampler, FiltersOfTheHostKeepWhatTheySay) {
  const std::array logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  // The expected surprise is 1.14; the tokens have 0.69, 1.20, 1.90 and 3.00.
  EXPECT_EQ(Drawn({.typical_p = 0.2f}, logits), 0b0010);
  EXPECT_EQ(Drawn({.typical_p = 0.5f}, logits), 0b0011);
  EXPECT_EQ(Drawn({.typical_p = 0.9f}, logits), 0b0111);
  EXPECT_EQ(Drawn({.top_k = 1, .typical_p = 0.9f}, logits), 0b0001);
  // One standard deviation is 0.86: the second is 0.51 behind the first, the third 1.20.
  EXPECT_EQ(Drawn({.top_n_sigma = 0.5f}, logits), 0b0001);
  EXPECT_EQ(Drawn({.top_n_sigma = 1}, logits), 0b0011);
  EXPECT_EQ(Drawn({.top_n_sigma = 2}, logits), 0b0111);
  EXPECT_EQ(Drawn({.temperature = 2, .top_n_sigma = 1}, logits), 0b0011);
  // Of the likely ones only the last stays.
  EXPECT_EQ(Drawn({.xtc_probability = 1, .xtc_threshold = 0.1f}, logits), 0b1100);
  EXPECT_EQ(Drawn({.xtc_probability = 1, .xtc_threshold = 0.2f}, logits), 0b1110);
  EXPECT_EQ(Drawn({.xtc_probability = 1, .xtc_threshold = 0.4f}, logits), 0b1111);
  EXPECT_EQ(Drawn({.top_k = 3, .xtc_probability = 1, .xtc_threshold = 0}, logits), 0b0100);
}

TEST(Sampler, XtcComesAsOftenAsItSays) {
  const std::array logits = {std::log(0.6f), std::log(0.4f)};
  const auto draws = Draws({.xtc_probability = 0.5f, .xtc_threshold = 0.1f}, logits, 20000);
  EXPECT_NEAR(draws[0], 6000, 300);  // half of 60 %
}

TEST(Sampler, DryMakesWhatCarriesOnARepetitionLessLikely) {
  const std::array logits = {3.0f, 2.0f, 1.0f, 0.0f};
  SamplingParams params = {.temperature = 0};
  params.dry.multiplier = 0.8f;
  const auto after = [&](std::vector<int32_t> tokens) {
    Sampler sampler;
    return sampler.Sample(params, {.logits = logits, .tokens = tokens})->chosen.token;
  };
  EXPECT_EQ(after({}), 0);
  EXPECT_EQ(after({1, 0, 1}), 0);              // one token is not long enough
  EXPECT_EQ(after({2, 1, 0, 3, 2, 1}), 0);     // two cost 0.8 of the logit
  EXPECT_EQ(after({3, 2, 1, 0, 3, 2, 1}), 1);  // three cost 1.4
  params.dry.last_tokens = 5;                  // what was said first is out of sight
  EXPECT_EQ(after({3, 2, 1, 0, 3, 2, 1}), 0);
  params.dry.last_tokens = -1;
  params.dry.breakers = {2};  // nothing goes across
  EXPECT_EQ(after({3, 2, 1, 0, 3, 2, 1}), 0);
}

TEST(Sampler, RepetitionsAreThoseOfAPlainSearch) {
  Rng rng(3);
  DryParams params{.multiplier = 1, .breakers = {4}};
  Repetitions repetitions;
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> said(size_t(rng.Below(40)));
    for (int32_t& token : said) token = int32_t(rng.Below(5));
    std::vector<int32_t> longest(5, 0);
    const auto end = int32_t(said.size());
    for (int32_t at = 0; at < end; ++at) {
      int32_t length = 0;
      while (length < at && said[size_t(at - 1 - length)] == said[size_t(end - 1 - length)] &&
             said[size_t(at - 1 - length)] != 4) {
        ++length;
      }
      int32_t& most = longest[size_t(said[size_t(at)])];
      most = std::max(most, length);
    }
    std::vector<std::pair<int32_t, int32_t>> expected;
    for (int32_t token = 0; token < 4; ++token) {
      if (longest[size_t(token)] > 0) expected.emplace_back(token, longest[size_t(token)]);
    }
    const auto found = repetitions.Find(said, params);
    EXPECT_EQ(std::vector(found.begin(), found.end()), expected);
  }
  params.base = 100;
  EXPECT_TRUE(std::isfinite(DryPenalty(params, 1'000'000)));
}

TEST(Sampler, WordsAndTokensThatAreRuledOutNeverCome) {
  const std::array logits = {3.0f, 2.0f, 1.0f, 0.0f};
  Sampler sampler;
  const auto after = [&](const SamplingParams& params, std::vector<int32_t> tokens) {
    return sampler.Sample(params, {.logits = logits, .tokens = tokens});
  };
  const SamplingParams words = {.temperature = 0, .bad_words = {{2, 0}, {1}}};
  EXPECT_EQ(after(words, {2})->chosen.token, 2);
  EXPECT_EQ(after(words, {3})->chosen.token, 0);
  EXPECT_EQ(after(words, {})->chosen.token, 0);
  EXPECT_EQ(after(words, {3, 2})->chosen.token, 2);
  EXPECT_EQ(after(words, {2, 3})->chosen.token, 0) << "what was said last counts";
  const SamplingParams some = {.temperature = 0, .allowed_tokens = {1, 3}};
  EXPECT_EQ(after(some, {})->chosen.token, 1);
  const SamplingParams none = {.temperature = 0, .allowed_tokens = {1}, .bad_words = {{1}}};
  EXPECT_EQ(after(none, {}).status().code(), StatusCode::kFailedPrecondition);
  TokenMask mask(4, false);
  mask.Allow(2);
  EXPECT_EQ(sampler.Sample(some, {.logits = logits, .allowed = &mask}).status().code(),
            StatusCode::kFailedPrecondition);
}

// The same by sorting everything.
int32_t ChooseBySorting(const SamplingParams& params, std::span<const float> logits,
                        uint64_t position) {
  std::vector<int32_t> order;
  const float best = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((best - logits[i]) / params.temperature <= 30) order.push_back(static_cast<int32_t>(i));
  }
  const auto logit = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  std::vector<double> weights;
  for (const int32_t token : order) {
    weights.push_back(double(reference::Exp((logit(token) - best) / params.temperature)));
  }
  const double enough = double(params.top_p) * std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = 0;
  for (double sum = 0; kept < weights.size() && (kept == 0 || sum < enough);) {
    sum += weights[kept++];
  }
  while (kept > 1 && weights[kept - 1] < double(params.min_p) * weights[0]) --kept;
  weights.resize(kept);
  double left = double(RandomAt(params.seed, position) >> 11) * 0x1p-53 *
                std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

TEST(Sampler, ChoosesAsIfAllWereSorted) {
  const uint64_t seed = 42;
  uint64_t draws = 0;
  const auto random = [&] { return double(RandomAt(seed, draws++) >> 11) * 0x1p-53; };
  for (const size_t vocab : {1, 2, 17, 1000, 5000}) {
    for (const float spread : {0.0f, 0.01f, 3.0f, 40.0f}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits) {
        logit = spread * static_cast<float>(random() + random() + random() - 1.5);
        if (random() < 0.1) logit = std::round(logit);  // equals
      }
      for (const float temperature : {0.02f, 0.6f, 1.0f, 5.0f}) {
        for (const int top_k : {0, 1, 40}) {
          for (const float top_p : {0.0f, 0.3f, 0.95f, 1.0f}) {
            for (const float min_p : {0.0f, 0.05f, 1.0f}) {
              const SamplingParams params{.temperature = temperature,
                                          .top_k = top_k,
                                          .top_p = top_p,
                                          .min_p = min_p,
                                          .seed = 5};
              for (uint64_t position = 0; position < 5; ++position) {
                ASSERT_EQ(Choose(params, logits, position),
                          ChooseBySorting(params, logits, position))
                    << vocab << " tokens, spread " << spread << ", temperature " << temperature
                    << ", top_k " << top_k << ", top_p " << top_p << ", min_p " << min_p;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Sampler, PenaltiesLowerWhatWasSaid) {
  const std::array logits = {2.0f, 1.5f, 1.0f};
  const std::array<int32_t, 3> history = {0, 0, 1};
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(Choose(params, logits, 0, history, 3), 0);
  params.presence_penalty = 0.6f;  // 0: 1.4, 1: 0.9
  EXPECT_EQ(Choose(params, logits, 0, history, 3), 0);
  params.frequency_penalty = 0.3f;  // 0: 0.8, 1: 0.6, 2: 1.0
  EXPECT_EQ(Choose(params, logits, 0, history, 3), 2);
  EXPECT_EQ(Choose(params, logits, 0, history, 1), 0);  // only token 1 was generated
  params = {.temperature = 0, .repetition_penalty = 3};
  EXPECT_EQ(Choose(params, logits, 0, history, 0), 2);
}

TEST(Sampler, OnlyWhatIsAllowedIsChosen) {
  std::vector<float> logits(150, 1.0f);
  logits[0] = 9;
  Sampler sampler;
  TokenMask allowed(logits.size());
  allowed.Forbid(0);
  const auto choose = [&](float temperature, uint64_t position) {
    return sampler.Sample({.temperature = temperature, .top_k = 3},
                          {.logits = logits, .position = position, .allowed = &allowed});
  };
  for (const float temperature : {0.0f, 1.0f}) {
    for (uint64_t position = 0; position < 20; ++position) {
      EXPECT_NE(choose(temperature, position)->chosen.token, 0);
    }
  }
  allowed.Clear();
  for (const int32_t token : {63, 64, 149}) {
    allowed.Allow(token);
    EXPECT_EQ(choose(1, 7)->chosen.token, token);
    allowed.Forbid(token);
  }
  EXPECT_EQ(choose(1, 0).status().code(), StatusCode::kFailedPrecondition) << "a dead end";
}

TEST(TokenMask, IsASetOfTokens) {
  for (const size_t vocab : {1, 63, 64, 65, 1000}) {
    TokenMask mask(vocab);
    const auto last = static_cast<int32_t>(vocab - 1);
    EXPECT_TRUE(mask.allows(0) && mask.allows(last));
    size_t count = 0;
    for (const uint64_t word : mask.words()) count += static_cast<size_t>(std::popcount(word));
    EXPECT_EQ(count, vocab) << "nothing behind the vocabulary";
    TokenMask other(vocab, false);
    EXPECT_TRUE(other.empty());
    other.Allow(last);
    mask.And(other);
    EXPECT_TRUE(mask.allows(last));
    EXPECT_EQ(mask.allows(0), vocab == 1);
    mask.Forbid(last);
    EXPECT_TRUE(mask.empty());
  }
}

TEST(Sampler, ChoiceDependsOnSeedAndPositionAlone) {
  std::vector<float> logits(100, 0.0f);
  Sampler warm;
  for (uint64_t position = 0; position < 50; ++position) {
    auto again = warm.Sample({.seed = 9}, {.logits = logits, .position = position, .logprobs = 3});
    EXPECT_EQ(again->chosen.token, Choose({.seed = 9}, logits, position));
  }
  EXPECT_NE(Draws({.seed = 1}, logits, 50), Draws({.seed = 2}, logits, 50));
}

TEST(Sampler, LogprobsAreThoseOfTheModel) {
  const std::array logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  Sampler sampler;
  auto sampled = sampler.Sample({.temperature = 0, .logit_bias = {{0, 50.0f}}},
                                {.logits = logits, .logprobs = 2});
  ASSERT_TRUE(sampled.ok());
  EXPECT_EQ(sampled->chosen.token, 0);
  EXPECT_NEAR(sampled->chosen.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(sampled->top.size(), 2u);
  EXPECT_EQ(sampled->top[0].token, 1);
  EXPECT_NEAR(sampled->top[1].logprob, std::log(0.3), 1e-6);
}

TEST(Sampler, TheLargestIsOfThoseThatAreNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Largest({}), -inf);
  EXPECT_EQ(Largest(std::array{nan, -nan}), -inf);
  EXPECT_EQ(Largest(std::array{-inf, -3.0f, nan, -2.5f, -nan}), -2.5f);
  EXPECT_EQ(Largest(std::array{-1e-40f, -0.0f, -1.0f}), 0.0f);
  EXPECT_EQ(Largest(std::array{-1.0f, 1e-40f, 0.0f}), 1e-40f);
  EXPECT_EQ(Largest(std::array{3.0f, nan, inf, -inf}), inf);
  Rng rng(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> values(1 + rng.Below(40));
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
    float largest = -inf;
    for (const float value : values) largest = value > largest ? value : largest;
    EXPECT_EQ(Largest(values), largest) << round;
  }
}

TEST(Sampler, RefusesWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Sampler sampler;
  EXPECT_EQ(sampler.Sample({}, {.logits = std::array{0.0f, nan}}).status().code(),
            StatusCode::kInternal);
  const std::vector<float> broken(20, nan);  // what a prompt is scored with is not checked before
  EXPECT_TRUE(std::isnan(sampler.Score(broken, 1, 2).chosen.logprob));
  EXPECT_FALSE(Validate({.temperature = nan}, 10).ok());
  EXPECT_FALSE(Validate({.temperature = -1}, 10).ok());
  EXPECT_FALSE(Validate({.top_k = -1}, 10).ok());
  EXPECT_FALSE(Validate({.top_p = 1.5f}, 10).ok());
  EXPECT_FALSE(Validate({.repetition_penalty = 0}, 10).ok());
  EXPECT_FALSE(Validate({.logit_bias = {{10, 0.0f}}}, 10).ok());
  EXPECT_FALSE(Validate({.logit_bias = {{-1, 0.0f}}}, 10).ok());
  EXPECT_FALSE(Validate({.logit_bias = {{1, inf}}}, 10).ok());
  EXPECT_TRUE(Validate({}, 10).ok());
}

}  // namespace
}  // namespace reprise
