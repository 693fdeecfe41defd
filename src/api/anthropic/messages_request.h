// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/chat/job.h"
#include "api/fields.h"
#include "api/service.h"

namespace reprise::api::anthropic {

// The body of POST /v1/messages, in the form that all chat APIs share.
struct MessagesRequest {
  std::string model;
  bool stream = false;
  bool show_thinking = true;  // false: thinking blocks are empty
  int hour_breakpoints = 0;   // so many of the breakpoints have a ttl of an hour; they come first
  bool diagnose = false;      // say what has changed since an earlier request
  std::string previous_message_id;  // that request's answer; empty: there was none
  ChatJob job;
};

// Errors stay in `fields`. `count_only`: the body of /v1/messages/count_tokens, which has no
// max_tokens.
MessagesRequest ReadMessagesRequest(const ServiceOptions& options, bool count_only, Fields* fields);

}  // namespace reprise::api::anthropic
