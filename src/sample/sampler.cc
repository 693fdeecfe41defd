// SPDX-License-Identifier: Apache-2.0
#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/rng.h"
#include "kernels/reference/math.h"

namespace reprise {
namespace {

// Without top-k, tokens below this distance from the best are not candidates: e^-30 of the best
// each, less in sum than the rounding of the total for any vocabulary that exists.
constexpr float kLogitCut = 30.0f;

Status CheckRange(const char* name, float value, float low, float high) {
  if (std::isfinite(value) && value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(name) + " must be a number between " + std::to_string(low) +
                         " and " + std::to_string(high));
}

int32_t LargestIndex(std::span<const float> values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// ln(sum e^(x - best)) + best in one fixed order.
float LogSumExp(std::span<const float> values, float best) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(reference::Exp(value - best));
  return best + static_cast<float>(reference::LogDouble(sum));
}

}  // namespace

bool Sampler::Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

Status Validate(const SamplingParams& params, int64_t vocab_size) {
  REPRISE_TRY(CheckRange("temperature", params.temperature, 0, 100));
  REPRISE_TRY(CheckRange("top_p", params.top_p, 0, 1));
  REPRISE_TRY(CheckRange("min_p", params.min_p, 0, 1));
  REPRISE_TRY(CheckRange("presence_penalty", params.presence_penalty, -2, 2));
  REPRISE_TRY(CheckRange("frequency_penalty", params.frequency_penalty, -2, 2));
  REPRISE_TRY(CheckRange("repetition_penalty", params.repetition_penalty, 0.01f, 100));
  if (params.top_k < 0) return InvalidArgument("top_k must not be negative");
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
  for (const float logit : input.logits) {
    if (!std::isfinite(logit)) return Internal("the model produced a logit that is not a number");
  }
  logits_.assign(input.logits.begin(), input.logits.end());
  for (const auto& [token, bias] : params.logit_bias) logits_[static_cast<size_t>(token)] += bias;
  Penalise(params, input);
  for (const int32_t token : input.banned) {
    logits_[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
  }

  Sampled sampled;
  if (params.temperature == 0) {
    sampled.chosen.token = LargestIndex(logits_);
  } else {
    SelectCandidates(params);
    sampled.chosen.token = Draw(params, input.position);
  }
  if (input.logprobs >= 0) ListLogprobs(input, &sampled);
  return sampled;
}

Sampled Sampler::Score(std::span<const float> logits, int32_t token, int top) {
  Input input;
  input.logits = logits;
  input.logprobs = top;
  Sampled sampled;
  sampled.chosen.token = token;
  ListLogprobs(input, &sampled);
  return sampled;
}

void Sampler::ListLogprobs(const Input& input, Sampled* sampled) {
  const float best = input.logits[static_cast<size_t>(LargestIndex(input.logits))];
  const float total = LogSumExp(input.logits, best);
  sampled->chosen.logprob = input.logits[static_cast<size_t>(sampled->chosen.token)] - total;
  candidates_.clear();
  for (size_t i = 0; i < input.logits.size(); ++i) {
    candidates_.push_back({input.logits[i], static_cast<int32_t>(i)});
  }
  const size_t count = std::min(static_cast<size_t>(input.logprobs), candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), Better);
  for (size_t i = 0; i < count; ++i) {
    sampled->top.push_back({candidates_[i].token, candidates_[i].logit - total});
  }
}

void Sampler::Penalise(const SamplingParams& params, const Input& input) {
  if (params.repetition_penalty != 1) {
    counts_.resize(logits_.size(), 0);
    for (const int32_t token : input.history) {
      if (counts_[static_cast<size_t>(token)]++ != 0) continue;
      float& logit = logits_[static_cast<size_t>(token)];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    for (const int32_t token : input.history) counts_[static_cast<size_t>(token)] = 0;
  }
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    counts_.resize(logits_.size(), 0);
    const auto replies = input.history.last(std::min(input.generated, input.history.size()));
    for (const int32_t token : replies) ++counts_[static_cast<size_t>(token)];
    for (const int32_t token : replies) {
      uint32_t& count = counts_[static_cast<size_t>(token)];
      if (count == 0) continue;
      logits_[static_cast<size_t>(token)] -=
          params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
      count = 0;
    }
  }
}

// Leaves in candidates_ the tokens that top-k, top-p and min-p allow, best first, and in weights_
// their unnormalised probabilities.
void Sampler::SelectCandidates(const SamplingParams& params) {
  const float best = *std::max_element(logits_.begin(), logits_.end());
  const float cut = best - kLogitCut * params.temperature;
  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] >= cut) candidates_.push_back({logits_[i], static_cast<int32_t>(i)});
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params.top_k, candidates_.end(),
                     Better);
    candidates_.resize(static_cast<size_t>(params.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), Better);

  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(reference::Exp((candidate.logit - best) / params.temperature));
    total += static_cast<double>(weights_.back());
  }
  size_t kept = weights_.size();
  if (params.top_p < 1) {
    double sum = 0;
    for (kept = 0; kept < weights_.size();) {
      sum += static_cast<double>(weights_[kept++]);
      if (sum >= static_cast<double>(params.top_p) * total) break;
    }
  }
  while (kept > 1 && weights_[kept - 1] < params.min_p * weights_[0]) --kept;
  candidates_.resize(kept);
  weights_.resize(kept);
}

int32_t Sampler::Draw(const SamplingParams& params, uint64_t position) {
  double total = 0;
  for (const float weight : weights_) total += static_cast<double>(weight);
  const double uniform = static_cast<double>(RandomAt(params.seed, position) >> 11) * 0x1p-53;
  double left = uniform * total;
  for (size_t i = 0; i + 1 < weights_.size(); ++i) {
    left -= static_cast<double>(weights_[i]);
    if (left < 0) return candidates_[i].token;
  }
  return candidates_.back().token;
}

}  // namespace reprise
