// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "api/anthropic/message_json.h"
#include "api/chat/reply.h"
#include "http/exchange.h"

namespace reprise::api::anthropic {

// Answers with one message object.
std::unique_ptr<ReplySink> MakeWholeSink(http::ExchangePtr exchange, MessageHead head);

// Answers with events: message_start, then for each block content_block_start, its deltas and
// content_block_stop, then message_delta and message_stop; or error, last.
std::unique_ptr<ReplySink> MakeStreamSink(http::ExchangePtr exchange, MessageHead head);

}  // namespace reprise::api::anthropic
