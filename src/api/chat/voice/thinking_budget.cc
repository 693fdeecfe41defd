// SPDX-License-Identifier: Apache-2.0
#include "api/chat/voice/thinking_budget.h"

#include <algorithm>
#include <string>

#include "text/output/thinking.h"

namespace reprise::api {

std::vector<TokenId> ClosingTokens(const Tokenizer& tokenizer, const ReasoningFormat& format) {
  std::vector<TokenId> ids;
  EncodeOptions options;
  options.add_special = false;
  options.parse_special = true;
  // Cannot fail for a text as short as this; without it the reply would only go on thinking.
  static_cast<void>(tokenizer.Encode(EndOfThinking(format), options, &ids).ok());
  return ids;
}

void ThinkingBudget::Count(const std::optional<ReuseReport>& first, double first_token_ms,
                           double total_ms, Completion* completion) const {
  if (before_ == 0) return;
  completion->prompt_tokens -= before_;
  completion->generated_tokens += before_;
  if (first) {
    const int32_t stored = completion->report.stored_tokens;
    completion->report = *first;
    completion->report.stored_tokens = std::min(stored, completion->prompt_tokens);
  }
  completion->first_token_ms = first_token_ms;
  completion->total_ms = total_ms;
}

}  // namespace reprise::api
