// SPDX-License-Identifier: Apache-2.0
#include "api/errors.h"

#include <fmt/format.h>

#include "base/json_writer.h"

namespace reprise::api {
namespace {

const char* OpenAiType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

const char* AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError ApiError::From(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented:
    case StatusCode::kResourceExhausted:
      return {400, status.message()};
    case StatusCode::kNotFound:
      return {404, status.message()};
    case StatusCode::kFailedPrecondition:
    case StatusCode::kCancelled:
      return {503, status.message()};
    default:
      return {500, status.message()};
  }
}

ApiError ApiError::TooLong(int64_t prompt_tokens, int64_t context_tokens) {
  ApiError error{400, "", "messages", "context_length_exceeded"};
  error.message = fmt::format(
      "This model's maximum context length is {} tokens. However, your prompt has {} tokens and "
      "the reply needs at least one. Shorten the prompt, or serve the model with a larger "
      "--context.",
      context_tokens, prompt_tokens);
  error.anthropic_message =
      fmt::format("prompt is too long: {} tokens > {} maximum", prompt_tokens, context_tokens - 1);
  return error;
}

ApiError ApiError::FromPrompt(const Status& status) {
  ApiError error = From(status);
  if (status.code() != StatusCode::kResourceExhausted) return error;
  error.param = "messages";
  error.code = "context_length_exceeded";
  error.anthropic_message = "prompt is too long: " + error.message;
  return error;
}

ApiError ApiError::OverQuota(const Quota::Refusal& refusal) {
  ApiError error{429, "", "", "rate_limit_exceeded"};
  error.message = fmt::format("this key may use {}, and has used them; try again in {} s",
                              refusal.limit, refusal.seconds);
  error.retry_seconds = refusal.seconds;
  return error;
}

ApiError ApiError::FromEngine(const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return From(status);
  return {429, status.message(), "", "rate_limit_exceeded"};
}

std::string FormatOpenAi(const ApiError& error) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("error").BeginObject();
  json.Member("message", error.message).Member("type", OpenAiType(error.status));
  json.Key("param");
  error.param.empty() ? json.Null() : json.String(error.param);
  json.Key("code");
  error.code.empty() ? json.Null() : json.String(error.code);
  json.EndObject().EndObject();
  return body;
}

std::string FormatAnthropic(const ApiError& error, const std::string& request_id) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Member("type", "error").Key("error").BeginObject();
  json.Member("type", AnthropicType(error.status));
  json.Member("message", error.anthropic_message.empty() ? error.message : error.anthropic_message);
  if (error.code.starts_with("thread_")) {  // clients act on these codes
    json.Key("details").BeginObject().Member("error_code", error.code);
    json.Key("unsupported").BeginArray().String("thread").EndArray().EndObject();
  }
  json.EndObject();
  json.Member("request_id", request_id).EndObject();
  return body;
}

std::string FormatOllama(const ApiError& error) {
  std::string body;
  JsonWriter(&body).BeginObject().Member("error", error.message).EndObject();
  return body;
}

bool SpeaksAnthropic(const http::Request& request) {
  return request.path == "/v1/messages" || request.path.starts_with("/v1/messages/") ||
         !request.Header("anthropic-version").empty();
}

http::Response ErrorResponse(const ApiError& error, const http::Request* request) {
  http::Response response;
  response.status = error.status;
  response.reason = error.message;
  if (request != nullptr && SpeaksAnthropic(*request)) {
    response.body = FormatAnthropic(error, request->id);
    response.headers.emplace_back("request-id", request->id);
  } else if (request != nullptr && request->path.starts_with("/api/")) {
    response.body = FormatOllama(error);
  } else {
    response.body = FormatOpenAi(error);
  }
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_seconds));
  }
  return response;
}

void Refuse(const http::ExchangePtr& exchange, const ApiError& error) {
  // It was no error, only more than a small request has.
  if (exchange->account()->wants_more()) return exchange->StartOver();
  exchange->Respond(ErrorResponse(error, &exchange->request()));
}

}  // namespace reprise::api
