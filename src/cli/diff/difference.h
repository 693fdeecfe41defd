// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat/prompt.h"
#include "base/json.h"
#include "base/status.h"
#include "state/spec.h"

namespace reprise::cli {

// Where two prompts part, and what the second costs after the first.
struct Difference {
  size_t tokens_a = 0;
  size_t tokens_b = 0;
  size_t same_tokens = 0;   // at the beginning of both
  size_t same_bytes = 0;    // of text, whole characters
  size_t same_again = 0;    // tokens at the end of both, behind what differs
  size_t reused = 0;        // tokens of B whose state is there after A alone
  size_t reused_later = 0;  // and for a request that parts from both at the same place

  bool equal() const { return same_tokens == tokens_a && same_tokens == tokens_b; }
};

// `snapshot_gap` as in CacheOptions. What is reused is found by the index of the cache itself, with
// room for all, for a model with this state: recurrent layers go on from stored states only.
Result<Difference> Compare(const api::Prompt& a, const api::Prompt& b, const StateSpec& spec,
                           int32_t snapshot_gap);

// The places where what two bodies bring into their prompts differs, as paths in the JSON:
// "messages[0].content". At most `count_max`.
std::vector<std::string> DifferingPaths(const JsonValue& a, const JsonValue& b, size_t count_max);

// The text before and behind byte `at`, quoted, cut where it is long.
std::string TextBefore(std::string_view text, size_t at);
std::string TextBehind(std::string_view text, size_t at);

}  // namespace reprise::cli
