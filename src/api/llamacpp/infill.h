// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

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
Prompt ReadInfill(const ServedModel& model, const InfillTokens& tokens, Account* account,
                  Fields* fields);

// Appends a prompt that asks for what lies between two texts. Both are text, whatever they spell,
// and read no further than it takes to see that they do not fit.
Status AppendInfill(const ServedModel& model, const InfillTokens& tokens, std::string_view prefix,
                    std::string_view suffix, Account* account, Prompt* prompt);

// A reply that goes on to another file, or to another gap, has filled this one.
void StopAtInfillTokens(const InfillTokens& tokens, ReplyOptions* options);

// The member "suffix" of OpenAI's and Ollama's completions: true if there is one, with the prompt
// made of it and of `prefix`. Errors stay in `fields`.
bool ReadSuffix(const ServedModel& model, std::string_view prefix, Account* account, Fields* fields,
                ReplyOptions* options, Prompt* prompt);

}  // namespace reprise::api::llamacpp
