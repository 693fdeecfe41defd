// SPDX-License-Identifier: Apache-2.0
// Proves that a device which chooses tokens itself chooses those of Sampler, with the same log
// probabilities to the bit, given the same logits. Needs a GPU; what rows mean is tested without.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/make_backend.h"
#include "sample/choice_rows.h"

namespace reprise {
namespace {

TEST(ChoiceRows, SayWhatCannotBeContinued) {
  ChoiceRows rows;
  const TokenMask none(100, false);
  rows.Add({}, {.allowed = &none});
  rows.Add({}, {.position = 3});
  ASSERT_EQ(rows.batch().rows.size(), 2u);
  EXPECT_EQ(rows.batch().rows[0].mask, -1) << "the device is not asked the impossible";
  rows.results().chosen[0].token = 7;
  rows.results().chosen[1].token = -1;
  EXPECT_EQ(rows.Take(0).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(rows.Take(1).status().code(), StatusCode::kInternal);
  rows.Clear();
  EXPECT_EQ(rows.size(), 0u);
}

TEST(ChoiceRows, PutsEverythingOneBehindAnother) {
  ChoiceRows rows;
  TokenCounts said;
  said.AddPrompt(std::vector<int32_t>{4, 4, 5});
  said.AddGenerated(4);
  TokenMask mask(100);
  mask.Forbid(64);
  for (int i = 0; i < 2; ++i) {
    rows.Add({.temperature = 0.5f, .min_p = 0.1f, .presence_penalty = 1, .logit_bias = {{3, 2.0f}}},
             {.said = &said, .allowed = &mask, .logprobs = i});
  }
  const ChoiceBatch batch = rows.batch();
  EXPECT_EQ(batch.rows[1].bias_begin, 1);
  EXPECT_EQ(batch.rows[1].said_begin, 2);
  EXPECT_EQ(batch.rows[1].said_count, 2);
  EXPECT_EQ(batch.said[2].token, 4);
  EXPECT_EQ(batch.said[2].generated, 1u);
  EXPECT_EQ(batch.rows[1].mask, 1);
  EXPECT_EQ(batch.masks.size(), 4u);
  EXPECT_EQ(batch.masks[3], mask.words()[1]);
  EXPECT_NEAR(batch.rows[0].nearness, -std::log(0.1f), 1e-6f);
  EXPECT_EQ(batch.logprobs_max, 1);
  EXPECT_EQ(rows.results().listed.size(), 2u);
}

TEST(ChoiceRows, KnowHowMuchThereIsToCopy) {
  TokenCounts said;
  said.AddPrompt(std::vector<int32_t>{4, 4, 5, 6});
  const TokenMask mask(100);
  EXPECT_EQ(ChoiceRows::EntriesOf({}, {.said = &said}), 0u);
  EXPECT_EQ(ChoiceRows::EntriesOf({.presence_penalty = 1}, {.said = &said}), 3u);
  EXPECT_EQ(ChoiceRows::EntriesOf({.logit_bias = {{3, 2.0f}, {7, 1.0f}}}, {.allowed = &mask}), 4u);
}

TEST(MergeBiases, AddsThoseOfOneToken) {
  SamplingParams params{.logit_bias = {{5, 1.0f}, {2, 3.0f}, {5, 0.5f}, {5, 0.25f}}};
  MergeBiases(&params);
  const std::vector<std::pair<int32_t, float>> merged = {{2, 3.0f}, {5, 1.75f}};
  EXPECT_EQ(params.logit_bias, merged);
}

class DeviceChoice : public testing::Test {
 protected:
  void SetUp() override {
    auto made = MakeBackend({"cuda", 1});
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    backend_ = std::move(*made);
    scratch_ = std::make_unique<ScratchArena>(backend_->memory());
    // Steps of one shape have their logits in one place.
    ASSERT_TRUE(scratch_->Provide(size_t{64} << 20).ok());
  }

  // A row of a batch, with what Input points to.
  struct Asked {
    explicit Asked(size_t vocab) : mask(vocab) {}

    SamplingParams params;
    TokenCounts said;
    TokenMask mask;
    bool masked = false;
    uint64_t position = 0;
    int logprobs = -1;
    std::vector<float> logits;

    Sampler::Input input() const {
      return {.logits = logits,
              .said = &said,
              .position = position,
              .allowed = masked ? &mask : nullptr,
              .logprobs = logprobs};
    }
  };

  Asked Random(size_t vocab) {
    Asked asked(vocab);
    const auto below = [&](uint64_t n) { return rng_.Below(n); };
    const auto pick = [&](std::initializer_list<float> values) {
      return values.begin()[below(values.size())];
    };
    const float spread = pick({0.0f, 1e-3f, 0.1f, 2.0f, 8.0f, 60.0f});
    const float shift = pick({0.0f, -30.0f, 100.0f});
    asked.logits.resize(vocab);
    for (float& logit : asked.logits) {
      logit = shift + spread * (rng_.Uniform() + rng_.Uniform() + rng_.Uniform() - 1.5f);
      if (below(10) == 0) logit = std::round(logit);  // equals, and zeros of both signs
    }
    asked.params.temperature = pick({0.0f, 0.02f, 0.6f, 1.0f, 5.0f});
    asked.params.top_k = static_cast<int32_t>(pick({0, 0, 1, 20, 1000}));
    asked.params.top_p = pick({1.0f, 1.0f, 0.95f, 0.5f, 0.0f});
    asked.params.min_p = pick({0.0f, 0.0f, 0.05f, 1.0f, 1e-20f});
    asked.params.seed = below(1000);
    asked.position = below(100000);
    const auto token = [&] { return static_cast<int32_t>(below(vocab)); };
    if (below(3) == 0) {
      for (size_t i = 0; i < 20; ++i)
        asked.params.logit_bias.push_back({token(), 4 * pick({-1, 1})});
      MergeBiases(&asked.params);
    }
    if (below(3) == 0) {
      asked.params.repetition_penalty = pick({1.0f, 1.3f, 0.7f});
      asked.params.presence_penalty = pick({0.0f, 0.6f, -2.0f});
      asked.params.frequency_penalty = pick({0.0f, 0.3f});
      for (size_t i = 0; i < 300; ++i) asked.said.AddGenerated(token() % 97);
      asked.said.AddPrompt(std::vector<int32_t>{token(), token()});
    }
    asked.masked = below(3) == 0;
    if (asked.masked && below(2) == 0) {
      asked.mask.Clear();
      for (size_t i = 0; i < 1 + below(50); ++i) asked.mask.Allow(token());
    } else if (asked.masked) {
      for (size_t i = 0; i < vocab / 2; ++i) asked.mask.Forbid(token());
      asked.mask.Allow(token());
    }
    asked.logprobs = static_cast<int>(pick({-1, -1, 0, 5, 20}));
    return asked;
  }

  // Nothing is asked but for the largest logit.
  Asked Plain(size_t vocab) {
    Asked asked(vocab);
    asked.logits = Random(vocab).logits;
    asked.params.temperature = 0;
    return asked;
  }

  // Chosen behind a step, or with one that was told of it: which does nothing else.
  enum class When { kBehind, kWithStep };

  std::vector<Result<Sampled>> Choose(const std::vector<Asked>& batch, size_t vocab,
                                      When when = When::kBehind) {
    ChoiceRows rows;
    std::vector<float> logits;
    for (const Asked& asked : batch) {
      rows.Add(asked.params, asked.input());
      logits.insert(logits.end(), asked.logits.begin(), asked.logits.end());
    }
    const ScratchScope scope(*scratch_);
    const Rows place = {scratch_->Floats(logits.size()), int64_t(batch.size()), int64_t(vocab),
                        int64_t(vocab)};
    backend_->memory().UploadArray<float>(place.data, logits);
    const ChoiceBatch choices = rows.batch();
    if (when == When::kWithStep) RunStep(place, choices);
    const Status chosen =
        ChooseTokens({backend_.get(), scratch_.get()}, place, choices, rows.results());
    EXPECT_TRUE(chosen.ok());
    std::vector<Result<Sampled>> results;
    for (size_t i = 0; i < batch.size(); ++i) results.push_back(rows.Take(i));
    return results;
  }

  void RunStep(const Rows& logits, const ChoiceBatch& choices) {
    std::vector<int32_t> each(size_t(logits.rows));
    std::iota(each.begin(), each.end(), 0);
    std::vector<StepSequence> sequences(each.size());
    for (const int32_t row : each) {
      sequences[size_t(row)].row_begin = row;
      sequences[size_t(row)].row_count = 1;
    }
    StepLayout step;
    step.host = {.tokens = each,
                 .positions = each,
                 .row_sequences = each,
                 .sequences = sequences,
                 .blocks = {},
                 .taps = {},
                 .logit_rows = each};
    step.choices = &choices;
    backend_->BeginStep(*scratch_, &step);
    backend_->RunStep(*scratch_, step, {this, logits, nullptr}, [] {});
  }

  void Compare(const std::vector<Asked>& batch, size_t vocab, When when = When::kBehind) {
    const std::vector<Result<Sampled>> device = Choose(batch, vocab, when);
    Sampler sampler;
    for (size_t i = 0; i < batch.size(); ++i) {
      const Result<Sampled> host = sampler.Sample(batch[i].params, batch[i].input());
      ASSERT_EQ(host.ok(), device[i].ok()) << host.status().message();
      if (!host.ok()) continue;
      const SamplingParams& params = batch[i].params;
      ASSERT_EQ(host->chosen.token, device[i]->chosen.token)
          << vocab << " tokens, temperature " << params.temperature << ", top_k " << params.top_k
          << ", top_p " << params.top_p << ", min_p " << params.min_p << ", row " << i << " of "
          << batch.size();
      if (batch[i].logprobs < 0) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(host->chosen.logprob),
                std::bit_cast<uint32_t>(device[i]->chosen.logprob));
      ASSERT_EQ(host->top.size(), device[i]->top.size());
      for (size_t j = 0; j < host->top.size(); ++j) {
        ASSERT_EQ(host->top[j].token, device[i]->top[j].token) << j;
        ASSERT_EQ(host->top[j].logprob, device[i]->top[j].logprob) << j;
      }
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ScratchArena> scratch_;
  Rng rng_{7};
};

TEST_F(DeviceChoice, IsThatOfTheSampler) {
  for (const size_t vocab : {1, 2, 63, 257, 4096, 4097, 32000, 151936, 262144}) {
    const int batches = vocab > 100000 ? 6 : 30;
    for (int i = 0; i < batches; ++i) {
      std::vector<Asked> batch;
      const uint64_t rows = 1 + rng_.Below(i % 3 == 0 ? 40 : 3);
      for (uint64_t row = 0; row < rows; ++row) batch.push_back(Random(vocab));
      Compare(batch, vocab);
      if (HasFatalFailure()) return;
    }
  }
}

// Steps of one shape are a graph from the second on, and what is asked for differs from one to the
// next: parameters, tokens with biases, and how many were said. In between others ask for more.
TEST_F(DeviceChoice, WithTheStepIsThatOfTheSampler) {
  constexpr size_t kVocab = 9000;
  for (int i = 0; i < 120; ++i) {
    std::vector<Asked> batch;
    for (int row = 0; row < 3; ++row) {
      Asked asked = Random(kVocab);
      const int kind = i / 4 % 8;
      if ((kind & 1) == 0) asked.params.temperature = 0;
      if ((kind & 2) == 0) asked.logprobs = -1;
      if ((kind & 4) == 0) {
        asked.params.logit_bias.clear();
        asked.params.repetition_penalty = 1;
        asked.params.presence_penalty = asked.params.frequency_penalty = 0;
        asked.masked = false;
      }
      batch.push_back(std::move(asked));
    }
    Compare(batch, kVocab, When::kWithStep);
    if (i % 7 == 0) Compare(batch, kVocab, When::kBehind);
    if (HasFatalFailure()) return;
  }
}

// The counts of what was said grow with every token, the others stay as they are.
TEST_F(DeviceChoice, WithTheStepSeesWhatWasSaidLast) {
  constexpr size_t kVocab = 700;
  std::vector<Asked> batch(2, Plain(kVocab));
  for (Asked& asked : batch) asked.params.presence_penalty = 30;
  std::vector<int> seen(kVocab, 0);
  for (int i = 0; i < 300; ++i) {
    Compare(batch, kVocab, When::kWithStep);
    if (HasFatalFailure()) return;
    Sampler sampler;
    for (size_t row = 0; row < batch.size(); ++row) {
      const int32_t token = sampler.Sample(batch[row].params, batch[row].input())->chosen.token;
      batch[row].said.AddGenerated(token);
      if (row == 0) ++seen[size_t(token)];
    }
  }
  EXPECT_LE(*std::max_element(seen.begin(), seen.end()), 1) << "a token came back";
}

// More than are chosen at once, of all kinds side by side.
TEST_F(DeviceChoice, ManyRowsAreThoseOfTheSampler) {
  for (const size_t rows : {64, 65, 150}) {
    std::vector<Asked> batch;
    for (size_t row = 0; row < rows; ++row) batch.push_back(Random(300));
    batch[rows - 1].logprobs = 7;
    for (const When when : {When::kBehind, When::kWithStep}) Compare(batch, 300, when);
    if (HasFatalFailure()) return;
  }
}

// All in one bucket, all equal, around zero.
TEST_F(DeviceChoice, CrowdedBucketsAreThoseOfTheSampler) {
  for (const size_t vocab : {4096, 4097, 60000}) {
    for (const float spread : {0.0f, 1e-6f, 0.5f, 20.0f}) {
      std::vector<Asked> batch;
      for (int row = 0; row < 4; ++row) {
        Asked asked = Plain(vocab);
        const float middle = row % 2 == 0 ? 3 : 0;
        for (float& logit : asked.logits) logit = middle + spread * (rng_.Uniform() - 0.5f);
        asked.params.temperature = 8;
        asked.params.seed = rng_.Below(1000);
        if (row == 1) asked.params.top_k = int32_t(vocab - 3);
        if (row == 2) asked.params.top_p = 0.7f;
        if (row == 3) asked.params.min_p = 0.5f, asked.logprobs = 20;
        batch.push_back(std::move(asked));
      }
      Compare(batch, vocab, When::kWithStep);
      if (HasFatalFailure()) return;
    }
  }
}

// Where all of a batch want no more there is a shorter way.
TEST_F(DeviceChoice, TheLargestOfEveryRowIsThatOfTheSampler) {
  for (const size_t vocab : {1, 2, 63, 257, 4096, 4097, 151936, 262144}) {
    for (const size_t rows : {1, 2, 16, 17, 40}) {
      std::vector<Asked> batch;
      for (size_t row = 0; row < rows; ++row) batch.push_back(Plain(vocab));
      // The first and the last of a row, and of several that are equal the first.
      batch[0].logits[0] = 1000;
      batch[rows - 1].logits[vocab - 1] = batch[rows - 1].logits[vocab / 2] = 2000;
      Compare(batch, vocab);
      if (HasFatalFailure()) return;
    }
  }
}

// What the step said of its sequences, whichever way the tokens are chosen.
TEST_F(DeviceChoice, FlagsComeBackOnTheWay) {
  for (const bool plain : {false, true}) {
    for (const size_t count : {1, 5, 300}) {
      ChoiceRows rows;
      const Asked asked = plain ? Plain(500) : Random(500);
      rows.Add(asked.params, asked.input());
      const ScratchScope scope(*scratch_);
      const Rows logits = {scratch_->Floats(500), 1, 500, 500};
      backend_->memory().UploadArray<float>(logits.data, asked.logits);
      std::vector<uint8_t> flags(count), came(count, 7);
      for (uint8_t& flag : flags) flag = static_cast<uint8_t>(rng_.Below(2));
      const DevicePtr<uint8_t> place = scratch_->Take<uint8_t>(count);
      backend_->memory().UploadArray<uint8_t>(place, flags);
      ChoiceResults results = rows.results();
      results.flags = came;
      results.flags_at = place;
      const OpContext context = {backend_.get(), scratch_.get()};
      ASSERT_TRUE(ChooseTokens(context, logits, rows.batch(), results).ok());
      EXPECT_EQ(came, flags) << (plain ? "the largest" : "any");
    }
  }
}

TEST_F(DeviceChoice, RefusesLogitsThatAreNoNumbers) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const bool plain : {false, true}) {
      std::vector<Asked> batch;
      for (int i = 0; i < 3; ++i) batch.push_back(plain ? Plain(5000) : Random(5000));
      batch[1].logits[4999] = bad;
      const auto chosen = Choose(batch, 5000);
      EXPECT_EQ(chosen[1].status().code(), StatusCode::kInternal);
      EXPECT_TRUE(chosen[0].ok() && chosen[2].ok());
    }
  }
}

}  // namespace
}  // namespace reprise
