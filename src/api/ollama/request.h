// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/chat/job.h"
#include "api/chat/prompt.h"
#include "api/fields.h"
#include "api/openai/params.h"
#include "api/service.h"

namespace reprise::api::ollama {

// The body of POST /api/chat or /api/generate, in the form that all chat APIs share.
struct OllamaRequest {
  std::string model;  // without ":latest"
  bool stream = true;
  bool load_only = false;  // nothing is said: clients do so to have the model loaded
  bool raw = false;        // generate: `prompt` as it is, without the template
  std::string prompt;
  Prompt infill;  // generate with a suffix: the whole prompt
  ChatJob job;
};

// Errors stay in `fields`.
OllamaRequest ReadChat(const ServiceOptions& options, const ServedModel& model, Account* account,
                       Fields* fields);
OllamaRequest ReadGenerate(const ServiceOptions& options, const ServedModel& model,
                           Account* account, Fields* fields);

// The model that a body names, as "model" or "name".
std::string ReadModelName(Fields* fields);

}  // namespace reprise::api::ollama
