// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/chat/reply.h"
#include "api/responses/response_json.h"
#include "http/exchange.h"

namespace reprise::api::responses {

// Gets the whole response object and the items of the reply when it is complete; of one in the
// background when it has failed, too.
using Keep = std::function<void(std::string body, Items items)>;
// Called when the reply begins to be computed.
using Started = std::function<void()>;

// Answers with one response object. `keep` and `started` may be null, here and below.
std::unique_ptr<ReplySink> MakeWholeSink(http::ExchangePtr exchange, ResponseHead head, Keep keep,
                                         Started started = nullptr);

// Answers with events, each with its sequence_number: response.created, response.in_progress; for
// each item response.output_item.added, what is in it, response.output_item.done; then
// response.completed, response.incomplete or response.failed. In a text or in reasoning:
// content_part.added, deltas, done, content_part.done; in a call: arguments.delta, done.
std::unique_ptr<ReplySink> MakeStreamSink(http::ExchangePtr exchange, ResponseHead head, Keep keep,
                                          Started started = nullptr);

}  // namespace reprise::api::responses
