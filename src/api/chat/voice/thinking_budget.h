// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request.h"
#include "text/output/output_format.h"
#include "text/tokenizer.h"

namespace reprise::api {

// The tokens that end open reasoning in the model's place.
std::vector<TokenId> ClosingTokens(const Tokenizer& tokenizer, const ReasoningFormat& format);

// ThinkingBudget counts the tokens that one choice thinks. When they are spent, the server ends the
// reasoning in the model's place: the reply goes on as another request, whose prompt is all that
// was said and the marker, so that the client sees one reply of two streams.
//
// Thread safety: none.
class ThinkingBudget {
 public:
  // A token of the reply; `thinking`: what comes next would be reasoning still, with at most `most`
  // tokens of it. True, once: they are spent, Close it.
  bool Spend(TokenId token, bool thinking, int32_t most) {
    said_.push_back(token);
    return thinking && ++thought_ >= most && !closed_;
  }

  // The reasoning ends with these. Returns all that was said, with them.
  const std::vector<TokenId>& Close(const std::vector<TokenId>& closing) {
    closed_ = true;
    said_.insert(said_.end(), closing.begin(), closing.end());
    return said_;
  }
  // The reply goes on in another stream, whose prompt ends with what was said.
  void GoOn() { before_ = static_cast<int32_t>(said_.size()); }

  // Makes the completion of the last stream that of the reply. `first`: what the first stream found
  // in the cache, when its first token came, and how long all of it took.
  void Count(const std::optional<ReuseReport>& first, double first_token_ms, double total_ms,
             Completion* completion) const;

 private:
  std::vector<TokenId> said_;  // so far, with what the server put in
  int32_t thought_ = 0;        // tokens of reasoning
  int32_t before_ = 0;         // of said_: in the first stream, and put in by the server
  bool closed_ = false;
};

}  // namespace reprise::api
