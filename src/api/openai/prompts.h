// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "api/chat/prompt.h"
#include "api/fields.h"

namespace reprise::api::openai {

inline constexpr size_t kPromptsMax = 128;

// "prompt": a text, token ids, or several of them. Errors stay in `fields`. The text of a prompt is
// there only `with_text`: to spell 8,000 ids takes longer than all else that is done for a request
// before the engine has it.
void ReadPrompts(const ServedModel& model, bool with_text, Account* account, Fields* fields,
                 std::vector<Prompt>* prompts);

}  // namespace reprise::api::openai
