// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "base/status.h"
#include "kernels/op_context.h"
#include "kernels/rows.h"

namespace reprise {

// Tokens chosen where the logits lie, so that only the choices come back: for backends that can
// (Backend::chooses). What is chosen is said by kernels/reference/choice.h; sample/choice_rows.h
// makes these plain data from the parameters of requests.

struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};
struct TokenSaid {
  int32_t token = 0;
  uint32_t generated = 0;  // how often; 0: only in the prompt
};

// How the token of one row is chosen.
struct ChoiceRow {
  double top_p = 1;                                         // 1: all
  double draw = 0;                                          // in [0, 1)
  float temperature = 0;                                    // 0: the largest
  float nearness = std::numeric_limits<float>::infinity();  // min-p: the largest distance
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t top_k = 0;  // 0: all
  // Entries of ChoiceBatch: no token twice.
  int32_t bias_begin = 0;
  int32_t bias_count = 0;
  int32_t said_begin = 0;
  int32_t said_count = 0;
  int32_t mask = -1;      // of ChoiceBatch::masks; -1: everything may be chosen
  int32_t logprobs = -1;  // -1: none; else of the chosen token and of so many others
};

struct ChoiceBatch {
  std::span<const ChoiceRow> rows;
  std::span<const TokenBias> biases;
  std::span<const TokenSaid> said;
  std::span<const uint64_t> masks;  // [masks, ceil(vocabulary / 64)]: bits of what may be chosen
  int32_t logprobs_max = 0;         // the most of any row
};

// At most so many others: more than the APIs let anybody ask for.
inline constexpr int32_t kChoiceLogprobsMax = 128;

struct ChosenToken {
  int32_t token = -1;  // -1: a logit is not finite
  float logit = 0;     // as the model gave it, of the token
  // Only if logprobs were asked for.
  float largest = 0;    // of all as the model gave them
  uint32_t listed = 0;  // others
  uint64_t mass = 0;    // of all at temperature 1
};
struct ListedToken {
  int32_t token = 0;
  float logit = 0;
};

struct ChoiceResults {
  std::span<ChosenToken> chosen;  // [rows]
  std::span<ListedToken> listed;  // [rows, logprobs_max], the most likely first
  // Bytes that the step left on the device, at `flags_at`: they come back with the tokens, and not
  // where there are no rows to choose for.
  std::span<uint8_t> flags;
  DevicePtr<const uint8_t> flags_at = nullptr;
};

// Chooses a token for every row of `logits`, [rows, vocabulary]: asks for it, does `meanwhile` (if
// there is something to do), and waits for it. Fails with kResourceExhausted, before anything else,
// if the device has no memory for it. REQUIRES: context.backend->chooses().
Status ChooseTokens(const OpContext& context, const ConstRows& logits, const ChoiceBatch& batch,
                    const ChoiceResults& results, const std::function<void()>& meanwhile = {});

}  // namespace reprise
