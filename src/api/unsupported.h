// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/fields.h"
#include "api/service.h"

namespace reprise::api {

// Whose fields a body has.
enum class Dialect {
  kChat,
  kCompletions,
  kResponses,
  kMessages,
  kOllama,
  kOllamaVectors,
  kLlamaCpp,
  kVectors,  // OpenAI's embeddings, ranks
  kPrompt,   // what asks for the prompt of a chat, and may be the whole request
  kOwn,      // what only this server has
};

// Looks at every field that the reader of a body did not ask for (docs/adr/0008-unknown-fields.md).
// What changes no answer passes. What other servers do and this one does not is refused by name,
// unless its value asks for nothing (false, 1 for a penalty, an empty list); so is what nobody
// knows, or it is logged, where the operator wants that. Call it when all is read; errors stay in
// `fields`.
void RefuseUnread(Dialect dialect, const ServiceOptions& options, Fields* fields);

// llama.cpp's and Ollama's window of the penalty for repetition: here it is the whole context.
void CheckPenaltyWindow(Fields* fields);

}  // namespace reprise::api
