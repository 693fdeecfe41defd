// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "state/spec.h"

namespace reprise {

// SnapKV: of a long prompt, the K/V that its end attends to is kept while the reply is decoded
// (docs/snapkv.md). What a request may say about it.
struct SnapKv {
  static constexpr int32_t kWindow = 64;

  int32_t budget = 0;        // tokens of the prompt to keep; 0: `share` of them
  double share = 0;          // in (0, 1)
  int32_t window = kWindow;  // the last tokens of the prompt, whose queries choose
  // While the reply is decoded, rows are left out again after so many tokens, with its last tokens
  // as the window; 0: never. Less than a window counts as one.
  int32_t redecode = 0;

  bool off() const { return budget == 0 && share == 0; }

  friend bool operator==(const SnapKv&, const SnapKv&) = default;
};

// Of every list these are kept, besides the window: the first tokens, which every query attends to,
// and then those that weigh most. Weights are those of the heaviest of so many neighbours, so that
// what is kept are stretches of text, not single tokens.
inline constexpr int32_t kSinkTokens = 4;
inline constexpr int32_t kPoolTokens = 7;
inline constexpr int32_t kSnapKvWindowMax = 4096;

// Whether a model of this state has anything to leave out, and the numbers make sense:
// kInvalidArgument.
Status CheckSnapKv(const StateSpec& spec, const SnapKv& options);

// How many of the `tokens` of a prompt are kept, of every list: the budget, but at least first
// tokens and window, and what the model's own windows see. `tokens`: all, there is nothing to do.
int32_t KeptTokens(const StateSpec& spec, const SnapKv& options, int32_t tokens);

// Fills `kept` with rows, ascending, of one list: the first kSinkTokens, the last `window`, and of
// the others those with the largest weight, pooled among those before the window; of equals those
// that come first. `weights`: [rows], sums over the queries of the window.
// REQUIRES: kSinkTokens + window <= kept.size() < weights.size(). Costs: O(rows).
void ChooseKept(std::span<const float> weights, int32_t window, std::span<int32_t> kept);

// How much of each of `parts` parts of a sequence of `rows`, all as long, is kept, in percent over
// all lists [.., kept]: for people. REQUIRES: parts <= rows.
std::vector<uint8_t> KeptAlong(std::span<const int32_t> lists, int32_t kept, int32_t rows,
                               int32_t parts);

}  // namespace reprise
