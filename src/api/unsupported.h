// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/fields.h"

namespace reprise::api {

// Refuses by name what clients of other servers ask for and this one does not do: an answer that
// looks like what was asked for, and is not, is the worst of all. A value that asks for nothing
// (false, 1 for a penalty, an empty list) is let through. Errors stay in `fields`.
void RefuseUnsupported(Fields* fields);           // OpenAI's, vLLM's and llama.cpp's names
void RefuseAnthropicUnsupported(Fields* fields);  // Anthropic's

}  // namespace reprise::api
