// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/state_cache.h"
#include "state/ids.h"

namespace reprise {

// A Trace is a list of requests by time, as tokens. Requests of one conversation share their
// history as runs of a common pool, so that a trace of 150 million prompt tokens stays small.
//
// Formats, one JSON object a line:
//  - Mooncake: {"timestamp", "input_length", "output_length", "hash_ids"}: a hash stands for 512
//    tokens and everything before them. The last, partial hash of a prompt never comes again (what
//    follows fills it up), so it counts as tokens but is no place to meet.
//  - conversations: {"messages": [{"role", "content", "tool_calls"}, ..]}: each assistant message
//    is a request with all before it as prompt and itself as reply.
//  - turns: {"turns": ["..", ..]} (MT-Bench) or {"question": [[{"content"}], ..],
//    "involved_classes": [..]} (BFCL): user turns; replies are made up. A class stands for the
//    definitions of its tools, also made up, at the start of the prompt.
// Text becomes pseudo-tokens: words, numbers and marks, hashed. Conversations carry no times: they
// start one after another and go on after a pause, see Pace.
struct TraceRequest {
  struct Piece {
    uint32_t begin = 0;  // in Trace::pool
    uint32_t end = 0;
  };
  int64_t time_ms = 0;
  std::vector<Piece> prompt;  // concatenated
  std::vector<Boundary> boundaries;
  Piece reply;
  int32_t prompt_tokens = 0;
  uint32_t conversation = 0;
};

struct Pace {
  int64_t start_gap_ms = 5'000;  // between the first requests of two conversations
  int64_t turn_gap_ms = 20'000;  // between two turns, the median
  uint64_t seed = 1;
};

struct Trace {
  std::vector<TokenId> pool;
  std::vector<TraceRequest> requests;  // by time

  void PromptOf(const TraceRequest& request, std::vector<TokenId>* tokens) const;
  size_t PromptTokens() const;
};

// Recognises the format by its first line. `request_count_max` bounds what is read.
Result<Trace> ParseTrace(std::string_view jsonl, const Pace& pace,
                         size_t request_count_max = SIZE_MAX);
Result<Trace> ReadTrace(const std::string& path, const Pace& pace,
                        size_t request_count_max = SIZE_MAX);

}  // namespace reprise
