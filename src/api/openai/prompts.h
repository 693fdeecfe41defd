// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "api/chat/prompt.h"
#include "api/fields.h"

namespace reprise::api::openai {

inline constexpr size_t kPromptsMax = 128;

// "prompt": a text, token ids, or several of them. Errors stay in `fields`.
void ReadPrompts(const ServedModel& model, Fields* fields, std::vector<Prompt>* prompts);

}  // namespace reprise::api::openai
