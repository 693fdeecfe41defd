// SPDX-License-Identifier: Apache-2.0
#include "api/openai/prompts.h"

#include <string>
#include <utility>

namespace reprise::api::openai {
namespace {

bool IsTokenList(const JsonValue& value) {
  return value.is_array() && !value.items().empty() && value.items().front().is_int();
}

// One prompt: text, or token ids.
void ReadPrompt(const ServedModel& model, const JsonValue& value, bool with_text, Account* account,
                Fields* fields, std::vector<Prompt>* prompts) {
  Prompt prompt;
  if (value.is_string()) {
    const Status encoded =
        EncodeText(model, value.as_string(), {true, true}, Wanted::kWhatFits, account, &prompt);
    if (!encoded.ok()) return fields->Fail("prompt", "cannot be read: " + encoded.message());
    if (with_text) prompt.text = std::string(value.as_string());
  } else if (IsTokenList(value)) {
    prompt.ids.reserve(value.items().size());
    for (const JsonValue& id : value.items()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_size) {
        return fields->Fail("prompt", "must have token ids of the vocabulary only");
      }
      prompt.ids.push_back(static_cast<TokenId>(id.as_int()));
    }
    // One that cannot fit is refused, not shown.
    const bool fits = prompt.ids.size() <= static_cast<size_t>(model.context_tokens);
    if (with_text && fits) prompt.text = model.tokenizer->Decode(prompt.ids);
  } else {
    return fields->Fail("prompt", "must be a string, an array of strings, or token ids");
  }
  if (prompt.ids.empty() && prompt.tokens_too_many == 0) {
    return fields->Fail("prompt", "must not be empty");
  }
  prompts->push_back(std::move(prompt));
}

}  // namespace

void ReadPrompts(const ServedModel& model, bool with_text, Account* account, Fields* fields,
                 std::vector<Prompt>* prompts) {
  const JsonValue* prompt = fields->Find("prompt");
  if (prompt == nullptr) return fields->Fail("prompt", "is required");
  if (!prompt->is_array() || IsTokenList(*prompt)) {
    return ReadPrompt(model, *prompt, with_text, account, fields, prompts);
  }
  if (prompt->items().empty()) return fields->Fail("prompt", "must not be empty");
  if (prompt->items().size() > kPromptsMax) {
    return fields->Fail("prompt", "must have at most " + std::to_string(kPromptsMax) + " items");
  }
  for (const JsonValue& item : prompt->items()) {
    if (fields->ok()) ReadPrompt(model, item, with_text, account, fields, prompts);
  }
}

}  // namespace reprise::api::openai
