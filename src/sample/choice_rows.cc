// SPDX-License-Identifier: Apache-2.0
#include "sample/choice_rows.h"

#include <algorithm>

#include "base/check.h"

namespace reprise {

void ChoiceRows::Clear() {
  rows_.clear();
  dead_ends_.clear();
  biases_.clear();
  said_.clear();
  masks_.clear();
  mask_count_ = 0;
  logprobs_max_ = 0;
}

size_t ChoiceRows::EntriesOf(const SamplingParams& params, const Sampler::Input& input) {
  static_assert(sizeof(TokenBias) == 8 && sizeof(TokenSaid) == 8);
  size_t entries = params.logit_bias.size();
  if (params.penalises()) entries += input.said->counts().size();
  if (input.allowed != nullptr) entries += input.allowed->words().size();
  return entries;
}

void ChoiceRows::Add(const SamplingParams& params, const Sampler::Input& input) {
  CHECK(Takes(params, input) && (input.said != nullptr || !params.penalises()));
  ChoiceRow& row = rows_.emplace_back();
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = static_cast<double>(params.top_p);
  if (params.min_p > 0) row.nearness = NearnessOf(params.min_p);
  row.draw = DrawAt(params.seed, input.position);
  row.logprobs = input.logprobs;
  logprobs_max_ = std::max(logprobs_max_, input.logprobs);
  row.bias_begin = static_cast<int32_t>(biases_.size());
  row.bias_count = static_cast<int32_t>(params.logit_bias.size());
  for (const auto& [token, bias] : params.logit_bias) biases_.push_back({token, bias});
  if (params.penalises()) {
    row.repetition_penalty = params.repetition_penalty;
    row.presence_penalty = params.presence_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.said_begin = static_cast<int32_t>(said_.size());
    row.said_count = static_cast<int32_t>(input.said->counts().size());
    for (const auto& [token, generated] : input.said->counts()) {
      said_.push_back({token, generated});
    }
  }
  const bool dead_end = input.allowed != nullptr && input.allowed->empty();
  dead_ends_.push_back(dead_end);
  if (input.allowed == nullptr || dead_end) return;
  row.mask = mask_count_++;
  const auto words = input.allowed->words();
  masks_.insert(masks_.end(), words.begin(), words.end());
}

ChoiceResults ChoiceRows::results() {
  chosen_.resize(rows_.size());
  listed_.resize(rows_.size() * static_cast<size_t>(logprobs_max_));
  return {chosen_, listed_, {}, nullptr};
}

Result<Sampled> ChoiceRows::Take(size_t row) const {
  if (dead_ends_[row] != 0) {
    return FailedPrecondition("the constraint allows no token here");
  }
  const ChosenToken& chosen = chosen_[row];
  if (chosen.token < 0) return Internal("the model produced a logit that is not a number");
  Sampled sampled;
  sampled.chosen.token = chosen.token;
  if (rows_[row].logprobs < 0) return sampled;
  const float total = LogTotal(chosen.largest, chosen.mass);
  sampled.chosen.logprob = chosen.logit - total;
  const auto listed =
      std::span(listed_).subspan(row * static_cast<size_t>(logprobs_max_), chosen.listed);
  for (const ListedToken& one : listed) sampled.top.push_back({one.token, one.logit - total});
  return sampled;
}

}  // namespace reprise
