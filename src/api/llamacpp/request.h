// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "api/chat/job.h"
#include "api/chat/prompt.h"
#include "api/fields.h"
#include "api/service.h"

namespace reprise::api::llamacpp {

// The body of POST /completion or /infill.
struct CompletionRequest {
  bool stream = false;
  bool return_tokens = false;
  bool return_progress = false;
  ReplyOptions options;
  CacheControl cache;
  std::vector<std::string> passed_fields;
};

// All but the prompt. Errors stay in `fields`.
CompletionRequest ReadCompletion(const ServiceOptions& options, int64_t vocab_size, Fields* fields);

}  // namespace reprise::api::llamacpp
