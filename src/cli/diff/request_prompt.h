// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/chat/prompt.h"
#include "api/served_model.h"
#include "base/json.h"
#include "base/status.h"

namespace reprise::cli {

// A request body in a file, with the prompt that the server would make of it.
struct RequestPrompt {
  JsonDocument body;
  api::Prompt prompt;  // its `text` is set, too
};

// Reads a body of any of the server's chat APIs (OpenAI's chat and responses, Anthropic's messages,
// Ollama's chat) or of /v1/completions, which is told by its members. Fails with a sentence that
// names the file: it cannot be read, is no JSON object, or the server would refuse it.
Result<RequestPrompt> ReadRequestPrompt(const api::ServedModel& model, const std::string& path);

}  // namespace reprise::cli
