// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "api/chat/reply.h"
#include "http/exchange.h"

namespace reprise::api::ollama {

enum class AnswerShape { kChat, kGenerate };

// Answers with one object, or with a line of JSON for every piece of the reply; the last has the
// counts and times.
std::unique_ptr<ReplySink> MakeAnswerSink(http::ExchangePtr exchange, std::string model,
                                          AnswerShape shape, bool stream);

// The answer to a request that only wanted the model to be there.
http::Response AnswerLoaded(const std::string& model, AnswerShape shape);

// "2026-01-31T12:00:00.000000Z"
std::string FormatTime(int64_t microseconds);
std::string FormatNow();

}  // namespace reprise::api::ollama
