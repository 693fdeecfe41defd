// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "api/chat/prompt.h"
#include "api/fields.h"
#include "text/tokenizer.h"

namespace reprise::api::llamacpp {

// The tokens with which a code model is asked for the middle of a text.
struct InfillTokens {
  int32_t prefix = -1;
  int32_t suffix = -1;
  int32_t middle = -1;
  int32_t file = -1;  // before another file of the repository; -1: the model knows none
};

// Those of this vocabulary; nothing if it was not made for it.
std::optional<InfillTokens> FindInfillTokens(const Tokenizer& tokenizer);

// "input_prefix", "input_suffix", "input_extra" and "prompt" (how the middle begins). What the
// texts contain stays text. Errors stay in `fields`.
Prompt ReadInfill(const Tokenizer& tokenizer, const InfillTokens& tokens, Fields* fields);

}  // namespace reprise::api::llamacpp
