// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/openai/params.h"
#include "api/responses/item.h"
#include "api/responses/store.h"
#include "api/service.h"

namespace reprise::api::responses {

// The body of POST /v1/responses, in the form that all chat APIs share.
struct ResponsesRequest {
  bool stream = false;
  bool store = true;            // the client may come back to the response
  bool background = false;      // nobody waits for it (background.h)
  bool seal_reasoning = false;  // include: reasoning.encrypted_content
  bool logprobs = false;        // include: message.output_text.logprobs
  Namespaces namespaces;
  CustomNames custom;
  StoredResponse conversation;  // items so far, and which of them came with this request
  std::string settings;         // members of the response object that repeat the request: JSON
  ChatJob job;
};

// Errors stay in `fields`. `tenant`: whose responses may be continued. `account` pays for the text
// of items that the request only names.
ResponsesRequest ReadResponsesRequest(const ServiceOptions& options, int64_t vocab_size,
                                      const ResponseStore& store, const Tenant& tenant,
                                      Account* account, Fields* fields);

}  // namespace reprise::api::responses
