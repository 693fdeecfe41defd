// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "api/quota.h"
#include "base/status.h"
#include "http/exchange.h"

namespace reprise::api {

// What a client is told when a request is refused or fails. The one table from codes to HTTP.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field that was wrong
  std::string code = {};   // for programs: "model_not_found", "context_length_exceeded", ...
  std::string anthropic_message = {};  // where Anthropic's clients look for other words
  int64_t retry_seconds = 1;           // of 429 and 503: when to ask again

  // A prompt that leaves no room for a reply, in the words by which agents know that they have to
  // shorten it.
  static ApiError TooLong(int64_t prompt_tokens, int64_t context_tokens);

  // Of what was asked: a text beyond a limit is wrong now and later.
  static ApiError From(const Status& status);
  // Of a prompt: one beyond a limit is too long, in the codes by which agents know it.
  static ApiError FromPrompt(const Status& status);
  // A key has used what it may.
  static ApiError OverQuota(const Quota::Refusal& refusal);
  // Of the engine: what it has no room for now may come again.
  static ApiError FromEngine(const Status& status);
};

// The body as OpenAI has it: {"error": {"message", "type", "param", "code"}}.
std::string FormatOpenAi(const ApiError& error);
// The body as Anthropic has it: {"type": "error", "error": {"type", "message"}, "request_id"}.
std::string FormatAnthropic(const ApiError& error, const std::string& request_id);

// The body as Ollama has it: {"error": "..."}.
std::string FormatOllama(const ApiError& error);

// Whether Anthropic's shapes are wanted: its paths, and its clients on those that all have.
bool SpeaksAnthropic(const http::Request& request);

// The answer in the shape that clients of `request` understand; null: OpenAI's.
http::Response ErrorResponse(const ApiError& error, const http::Request* request);
// Answers with the error; or, if a small request's work was spent, has the request start over.
void Refuse(const http::ExchangePtr& exchange, const ApiError& error);

}  // namespace reprise::api
