// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sample/ranking.h"
#include "sample/repetitions.h"
#include "sample/token_counts.h"
#include "sample/token_mask.h"

namespace reprise {

// How a token is chosen. The defaults are plain sampling from the model's distribution.
struct SamplingParams {
  float temperature = 1;  // 0: the most likely token
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token, added to its logit
  uint64_t seed = 0;

  // What follows is chosen on the host, on every device.
  float typical_p = 1;
  float top_n_sigma = 0;  // 0: off
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;
  DryParams dry = {};
  std::vector<int32_t> allowed_tokens = {};          // ascending; none: all
  std::vector<std::vector<int32_t>> bad_words = {};  // none of them is ever completed

  // Whether the choice depends on what was said before.
  bool penalises() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  // Whether tokens are ruled out or made less likely in ways that only the host has.
  bool restricts() const { return dry.on() || !allowed_tokens.empty() || !bad_words.empty(); }
  bool needs_host() const {
    return restricts() || typical_p < 1 || top_n_sigma > 0 || xtc_probability > 0;
  }
};

// One sentence about the first parameter that is out of range or not a number.
Status Validate(const SamplingParams& params, int64_t vocab_size);

// Tokens that have several biases get one, their sum, in the order of tokens.
void MergeBiases(SamplingParams* params);

// Parts of a choice, for whoever makes the same one elsewhere (choice_rows.h).
float NearnessOf(float min_p);                    // the distance that min-p keeps. REQUIRES: > 0
double DrawAt(uint64_t seed, uint64_t position);  // in [0, 1)
// The log of the sum of e^logit: the largest logit, and the mass of all at temperature 1.
float LogTotal(float largest, uint64_t mass);

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

struct Sampled {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the most likely tokens, as many as were asked for
};

// Chooses a token. The choice is a function of (params, logits, what was said, position, what is
// allowed): counter-based randomness, our own exp, sums in one order; so a sampled answer is the
// same in any batch, on any CPU and after any restore.
//
// Order of the filters: bias, penalties, DRY, bad words and allowed tokens, temperature,
// top-n-sigma, top-k, typical, top-p, min-p, XTC; how those that devices have and the draw compute
// is said by kernels/reference/choice.h. Log probabilities are those of the model's own
// distribution (before bias and temperature), as the APIs define them.
//
// Thread safety: none; it keeps scratch memory between calls.
// Costs: O(vocabulary), and what ranking.h says.
class Sampler {
 public:
  Sampler();

  struct Input {
    std::span<const float> logits = {};
    // Of prompt and reply, for the penalties; may be null if params.penalises() is false.
    const TokenCounts* said = nullptr;
    // The same, one after another, for DRY and bad words.
    std::span<const int32_t> tokens = {};
    uint64_t position = 0;               // of the token to choose
    const TokenMask* allowed = nullptr;  // what may be chosen; null: everything
    int logprobs = -1;                   // -1: none; else of the chosen token and of so many others
  };
  // Fails with kInternal if a logit is not finite, with kFailedPrecondition if no token is allowed
  // (a dead end).
  Result<Sampled> Sample(const SamplingParams& params, const Input& input);

  // The log probability of a token that is given, and of the `top` most likely ones.
  Sampled Score(std::span<const float> logits, int32_t token, int top);

 private:
  void Penalise(const SamplingParams& params, const TokenCounts& said);
  void Forbid(const TokenMask& allowed);
  void Restrict(const SamplingParams& params, std::span<const int32_t> tokens);
  // top-n-sigma: only tokens within so many standard deviations of the largest logit.
  void KeepWithinSigmas(const SamplingParams& params, std::span<const float> logits);
  // Typical sampling: of what is kept, the tokens whose surprise is nearest to the expected one,
  // with `share` of the mass. Others are gone from logits_.
  void KeepTypical(const SamplingParams& params, std::span<const float> logits);
  int32_t Draw(const SamplingParams& params, std::span<const float> logits, uint64_t position);
  void ListLogprobs(std::span<const float> logits, int top, Sampled* sampled);

  const cpu::KernelTable* table_;
  std::vector<float> logits_;  // with bias, penalties and mask, if there are any
  Repetitions repetitions_;
  Ranking ranking_;
};

}  // namespace reprise
