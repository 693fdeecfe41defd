// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace reprise {

// DRY ("don't repeat yourself"): a token that would carry on a repetition loses
// multiplier x base^(length - allowed_length) of its logit; `length` is how many tokens before it
// are repeated already.
struct DryParams {
  float multiplier = 0;  // 0: off
  float base = 1.75f;
  int32_t allowed_length = 2;
  int32_t last_tokens = -1;       // that are looked at; -1: all
  std::vector<int32_t> breakers;  // tokens that no repetition goes across, ascending

  bool on() const { return multiplier > 0 && base >= 1 && last_tokens != 0; }
};

// Finds which tokens would carry on a repetition.
//
// Thread safety: none; memory is kept from one call to the next.
// Costs: O(tokens that are looked at).
class Repetitions {
 public:
  // Token, and the length of the longest repetition that it would carry on: 1 or more. Each token
  // once, ascending; none is a breaker.
  std::span<const std::pair<int32_t, int32_t>> Find(std::span<const int32_t> said,
                                                    const DryParams& params);

 private:
  std::vector<int32_t> reversed_;
  std::vector<int32_t> common_;  // [i]: tokens that reversed_ and its part from i on have in common
  std::vector<std::pair<int32_t, int32_t>> found_;
};

// What a repetition of so many tokens costs the token that would carry it on; finite.
float DryPenalty(const DryParams& params, int32_t length);

}  // namespace reprise
