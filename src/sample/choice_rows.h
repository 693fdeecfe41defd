// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/status.h"
#include "kernels/choice_ops.h"
#include "sample/sampler.h"

namespace reprise {

// The rows of a step as a device that chooses tokens itself wants them, and what it chose as
// Sampler would say it. The choices are those of Sampler, given the same logits.
//
//   rows.Clear(); rows.Add(params, input); ...   // input.logits are not looked at
//   ChooseTokens(context, logits, rows.batch(), rows.results());
//   rows.Take(i);
//
// Thread safety: none. Memory is kept from one step to the next.
class ChoiceRows {
 public:
  // Whether a row may be added: not if more log probabilities are asked for than devices list, or
  // something that the host alone does.
  static bool Takes(const SamplingParams& params, const Sampler::Input& input) {
    return input.logprobs <= kChoiceLogprobsMax && !params.needs_host();
  }

  // What adding a row takes: entries of 8 bytes that are copied, for tokens with a bias, for those
  // that were said where that is penalised, for what is allowed.
  static size_t EntriesOf(const SamplingParams& params, const Sampler::Input& input);

  void Clear();
  // REQUIRES: no token has two biases.
  void Add(const SamplingParams& params, const Sampler::Input& input);
  size_t size() const { return rows_.size(); }

  ChoiceBatch batch() const { return {rows_, biases_, said_, masks_, logprobs_max_}; }
  ChoiceResults results();

  // As Sampler::Sample, of row i.
  Result<Sampled> Take(size_t row) const;

 private:
  std::vector<ChoiceRow> rows_;
  std::vector<uint8_t> dead_ends_;  // [rows]: no token is allowed
  std::vector<TokenBias> biases_;
  std::vector<TokenSaid> said_;
  std::vector<uint64_t> masks_;
  int32_t mask_count_ = 0;
  int32_t logprobs_max_ = 0;
  std::vector<ChosenToken> chosen_;
  std::vector<ListedToken> listed_;
};

}  // namespace reprise
