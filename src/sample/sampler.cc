// SPDX-License-Identifier: Apache-2.0
#include "sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/reference/math.h"

namespace reprise {
namespace {

Status CheckRange(const char* name, float value, float low, float high) {
  if (std::isfinite(value) && value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(name) + " must be a number between " + std::to_string(low) +
                         " and " + std::to_string(high));
}

constexpr float kRuledOut = -std::numeric_limits<float>::infinity();

// The lowest of equals; 0 if none is a number.
int32_t LargestIndex(std::span<const float> values) {
  const auto at = std::find(values.begin(), values.end(), Largest(values));
  return at == values.end() ? 0 : static_cast<int32_t>(at - values.begin());
}

// By the largest of their exponents: whole numbers, which the compiler makes vectors of.
bool AllFinite(std::span<const float> values) {
  constexpr uint32_t kMagnitude = 0x7fff'ffff, kInfinity = 0x7f80'0000;
  uint32_t most = 0;
  for (const float value : values) {
    most = std::max(most, std::bit_cast<uint32_t>(value) & kMagnitude);
  }
  return most < kInfinity;
}

}  // namespace

Sampler::Sampler() : table_(&cpu::ActiveTable()) {}

void MergeBiases(SamplingParams* params) {
  auto& biases = params->logit_bias;
  std::stable_sort(biases.begin(), biases.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t kept = 0;
  for (size_t i = 0; i < biases.size(); ++i) {
    if (kept > 0 && biases[kept - 1].first == biases[i].first) {
      biases[kept - 1].second += biases[i].second;
    } else {
      biases[kept++] = biases[i];
    }
  }
  biases.resize(kept);
}

float NearnessOf(float min_p) {
  return static_cast<float>(-reference::LogDouble(static_cast<double>(min_p)));
}

double DrawAt(uint64_t seed, uint64_t position) {
  return static_cast<double>(RandomAt(seed, position) >> 11) * 0x1p-53;
}

float LogTotal(float largest, uint64_t mass) {
  const double sum = static_cast<double>(mass) * reference::kChoiceUnit;
  return static_cast<float>(reference::LogDouble(sum) + static_cast<double>(largest));
}

Status Validate(const SamplingParams& params, int64_t vocab_size) {
  REPRISE_TRY(CheckRange("temperature", params.temperature, 0, 100));
  REPRISE_TRY(CheckRange("top_p", params.top_p, 0, 1));
  REPRISE_TRY(CheckRange("min_p", params.min_p, 0, 1));
  REPRISE_TRY(CheckRange("presence_penalty", params.presence_penalty, -2, 2));
  REPRISE_TRY(CheckRange("frequency_penalty", params.frequency_penalty, -2, 2));
  REPRISE_TRY(CheckRange("repetition_penalty", params.repetition_penalty, 0.01f, 100));
  REPRISE_TRY(CheckRange("typical_p", params.typical_p, 0, 1));
  REPRISE_TRY(CheckRange("top_n_sigma", params.top_n_sigma, 0, 100));
  REPRISE_TRY(CheckRange("xtc_probability", params.xtc_probability, 0, 1));
  REPRISE_TRY(CheckRange("xtc_threshold", params.xtc_threshold, 0, 1));
  REPRISE_TRY(CheckRange("dry_multiplier", params.dry.multiplier, 0, 100));
  REPRISE_TRY(CheckRange("dry_base", params.dry.base, 0, 100));
  if (params.dry.allowed_length < 0)
    return InvalidArgument("dry_allowed_length must not be negative");
  if (params.top_k < 0) return InvalidArgument("top_k must not be negative");
  for (const int32_t token : params.allowed_tokens) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("allowed_token_ids has token " + std::to_string(token) +
                             ", which the vocabulary does not have");
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("logit_bias names token " + std::to_string(token) +
                             ", which the vocabulary does not have");
    }
    REPRISE_TRY(CheckRange("a logit_bias", bias, -100, 100));
  }
  return OkStatus();
}

Result<Sampled> Sampler::Sample(const SamplingParams& params, const Input& input) {
  CHECK(input.said != nullptr || !params.penalises());
  CHECK(input.allowed == nullptr || input.allowed->vocab_size() == input.logits.size());
  if (input.allowed != nullptr && input.allowed->empty()) {
    return FailedPrecondition("the constraint allows no token here");
  }
  if (!AllFinite(input.logits)) return Internal("the model produced a logit that is not a number");
  std::span<const float> logits = input.logits;
  if (!params.logit_bias.empty() || params.penalises() || params.restricts() ||
      input.allowed != nullptr) {
    logits_.assign(logits.begin(), logits.end());
    for (const auto& [token, bias] : params.logit_bias) logits_[static_cast<size_t>(token)] += bias;
    if (params.penalises()) Penalise(params, *input.said);
    if (params.restricts()) Restrict(params, input.tokens);
    if (input.allowed != nullptr) Forbid(*input.allowed);
    logits = logits_;
    if (params.restricts() && Largest(logits) == kRuledOut) {
      return FailedPrecondition(
          "no token may come here: what allowed_token_ids and bad_words leave and what the reply "
          "must look like have none in common");
    }
  }
  Sampled sampled;
  sampled.chosen.token =
      params.temperature == 0 ? LargestIndex(logits) : Draw(params, logits, input.position);
  if (input.logprobs >= 0) ListLogprobs(input.logits, input.logprobs, &sampled);
  return sampled;
}

Sampled Sampler::Score(std::span<const float> logits, int32_t token, int top) {
  Sampled sampled;
  sampled.chosen.token = token;
  ListLogprobs(logits, top, &sampled);
  return sampled;
}

void Sampler::ListLogprobs(std::span<const float> logits, int top, Sampled* sampled) {
  ranking_.Rank(*table_, logits, 1);
  const float total = LogTotal(Largest(logits), ranking_.mass());
  const auto logprob = [&](int32_t token) { return logits[static_cast<size_t>(token)] - total; };
  sampled->chosen.logprob = logprob(sampled->chosen.token);

  // Nearly all tokens are worse than those that are listed already.
  const auto count = std::min(static_cast<size_t>(std::max(top, 0)), logits.size());
  std::vector<TokenLogprob>& listed = sampled->top;
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    const TokenLogprob entry{static_cast<int32_t>(i), logits[i]};
    if (listed.size() == count && entry.logprob <= listed.back().logprob) continue;
    const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
      return a.logprob > b.logprob;
    };
    if (listed.size() == count) listed.pop_back();
    listed.insert(std::upper_bound(listed.begin(), listed.end(), entry, better), entry);
  }
  for (TokenLogprob& entry : listed) entry.logprob = logprob(entry.token);
}

void Sampler::Penalise(const SamplingParams& params, const TokenCounts& said) {
  for (const auto& [token, generated] : said.counts()) {
    float& logit = logits_[static_cast<size_t>(token)];
    if (params.repetition_penalty != 1) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    if (generated > 0) {
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(generated);
    }
  }
}

void Sampler::Forbid(const TokenMask& allowed) {
  const std::span<const uint64_t> words = allowed.words();
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ~uint64_t{0}) continue;
    const size_t end = std::min(logits_.size(), 64 * (i + 1));
    for (size_t token = 64 * i; token < end; ++token) {
      if ((words[i] >> token % 64 & 1) == 0) {
        logits_[token] = kRuledOut;
      }
    }
  }
}

void Sampler::Restrict(const SamplingParams& params, std::span<const int32_t> tokens) {
  if (params.dry.on()) {
    for (const auto& [token, length] : repetitions_.Find(tokens, params.dry)) {
      logits_[static_cast<size_t>(token)] -= DryPenalty(params.dry, length);
    }
  }
  for (const std::vector<int32_t>& word : params.bad_words) {
    const auto before = std::span(word).first(word.size() - 1);
    if (tokens.size() < before.size()) continue;
    if (std::ranges::equal(before, tokens.last(before.size()))) {
      logits_[static_cast<size_t>(word.back())] = kRuledOut;
    }
  }
  if (params.allowed_tokens.empty()) return;
  size_t next = 0;
  for (const int32_t token : params.allowed_tokens) {
    for (; next < static_cast<size_t>(token); ++next) logits_[next] = kRuledOut;
    ++next;
  }
  for (; next < logits_.size(); ++next) logits_[next] = kRuledOut;
}

void Sampler::KeepWithinSigmas(const SamplingParams& params, std::span<const float> logits) {
  double sum = 0, squares = 0, count = 0;
  for (const float logit : logits) {
    if (logit == kRuledOut) continue;
    sum += double{logit};
    squares += double{logit} * double{logit};
    ++count;
  }
  const double mean = sum / count;
  const double sigma = std::sqrt(std::max(0.0, squares / count - mean * mean));
  const double distance = double{params.top_n_sigma} * sigma / double{params.temperature};
  ranking_.KeepNear(static_cast<float>(distance));
}

void Sampler::KeepTypical(const SamplingParams& params, std::span<const float> logits) {
  struct Candidate {
    double strangeness;
    Ranking::Kept kept;
  };
  // The surprise of a token is its distance and what all have; so the expected one is the mean of
  // the distances.
  const float largest = Largest(logits);
  const auto distance = [&](const Ranking::Kept& kept) {
    return double{reference::ChoiceDistance(largest, logits[static_cast<size_t>(kept.token)],
                                            params.temperature)};
  };
  const std::vector<Ranking::Kept> all = ranking_.KeptFrom(1);
  double expected = 0;
  for (const Ranking::Kept& kept : all)
    expected += static_cast<double>(kept.weight) * distance(kept);
  expected /= static_cast<double>(ranking_.mass());
  std::vector<Candidate> candidates;
  candidates.reserve(all.size());
  for (const Ranking::Kept& kept : all) {
    candidates.push_back({std::abs(distance(kept) - expected), kept});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.strangeness < b.strangeness; });
  const uint64_t wanted =
      reference::ChoiceShare(static_cast<double>(params.typical_p), ranking_.mass());
  uint64_t mass = 0;
  std::vector<float> kept(logits.size(), kRuledOut);
  for (size_t i = 0; i < candidates.size() && mass < wanted; ++i) {
    const auto token = static_cast<size_t>(candidates[i].kept.token);
    kept[token] = logits[token];
    mass += candidates[i].kept.weight;
  }
  logits_ = std::move(kept);
  ranking_.Rank(*table_, logits_, params.temperature);
}

int32_t Sampler::Draw(const SamplingParams& params, std::span<const float> logits,
                      uint64_t position) {
  ranking_.Rank(*table_, logits, params.temperature);
  if (params.top_n_sigma > 0) KeepWithinSigmas(params, logits);
  if (params.top_k > 0) ranking_.KeepCount(static_cast<size_t>(params.top_k));
  if (params.typical_p < 1) KeepTypical(params, logits);
  if (params.top_p < 1) ranking_.KeepMass(static_cast<double>(params.top_p));
  if (params.min_p > 0) ranking_.KeepNear(NearnessOf(params.min_p));
  // A draw of its own, so that the token's is the same with and without it.
  constexpr uint64_t kOfXtc = 0x9E3779B97F4A7C15;
  if (params.xtc_probability > 0 &&
      DrawAt(params.seed ^ kOfXtc, position) < double{params.xtc_probability}) {
    ranking_.DropLikely(params.xtc_threshold);
  }
  return ranking_.At(DrawAt(params.seed, position));
}

}  // namespace reprise
