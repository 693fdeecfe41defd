// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "api/chat/reply.h"
#include "http/exchange.h"

namespace reprise::api::llamacpp {

// Answers with one object, or with events of which the last has "stop": true, counts and times.
// `whole_list`: several prompts were sent; the answers are an array.
std::unique_ptr<ReplySink> MakeCompletionSink(http::ExchangePtr exchange, std::string model,
                                              bool return_tokens, bool stream, bool whole_list);

}  // namespace reprise::api::llamacpp
