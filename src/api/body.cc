// SPDX-License-Identifier: Apache-2.0
#include "api/body.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "api/fields.h"

namespace reprise::api {
namespace {

constexpr size_t kNameBytesMax = 256;
// What a parsed document takes for a byte of text and for a value of it.
constexpr size_t kTextBytes = 2;
constexpr size_t kValueBytes = 48;

// "application/json; charset=utf-8", also application/x+json. Nothing else: web pages may send text
// and forms anywhere, whatever parameters they give them.
bool IsJson(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  constexpr std::string_view kApplication = "application/";
  if (!http::EqualIgnoringCase(type.substr(0, kApplication.size()), kApplication)) return false;
  type.remove_prefix(kApplication.size());
  constexpr std::string_view kSuffix = "+json";
  return http::EqualIgnoringCase(type, "json") ||
         (type.size() > kSuffix.size() &&
          http::EqualIgnoringCase(type.substr(type.size() - kSuffix.size()), kSuffix));
}

// curl -d '{...}' says so, whatever is sent; Ollama's documentation shows it like that.
bool IsCurlForm(const http::Request& request, std::string_view content_type) {
  constexpr std::string_view kForm = "application/x-www-form-urlencoded";
  return request.path.starts_with("/api/") && http::EqualIgnoringCase(content_type, kForm);
}

// Some programs do not say what they send. Browsers say who asks, whatever a page makes them send.
bool IsProgram(const http::Request& request) {
  return request.Header("origin").empty() && request.Header("sec-fetch-site").empty();
}

}  // namespace

Body ParseBody(const http::Request& request) {
  Body body;
  const std::string_view encoding = request.Header("content-encoding");
  const std::string_view type = request.Header("content-type");
  const bool unsaid = type.empty() || IsCurlForm(request, type);
  if (!IsJson(type) && !(unsaid && IsProgram(request))) {
    body.error = ApiError{415, "send the body with content-type: application/json"};
    return body;
  }
  if (!encoding.empty() && !http::EqualIgnoringCase(encoding, "identity")) {
    body.error = ApiError{415, "send the body without a content-encoding"};
    return body;
  }
  auto parsed = JsonDocument::Parse(request.body, kBodyLimits);
  if (!parsed.ok()) {
    body.error = ApiError{400, "the body is not valid JSON: " + parsed.status().message()};
  } else if (!parsed->root().is_object()) {
    body.error = ApiError{400, "the body must be a JSON object"};
  } else {
    body.document.emplace(std::move(*parsed));
  }
  return body;
}

Body ParseBody(const http::Exchange& exchange) {
  const std::string& text = exchange.request().body;
  const size_t values = 1 + static_cast<size_t>(std::count(text.begin(), text.end(), ','));
  const size_t bytes =
      kTextBytes * text.size() + kValueBytes * std::min(values, kBodyLimits.value_count_max);
  const Status room = exchange.account()->TakeReading(bytes, "the parsed body");
  if (room.ok()) return ParseBody(exchange.request());
  Body body;
  body.error = ApiError::From(room);
  return body;
}

Body ParseBody(const http::Exchange& exchange, const ServedModel& model) {
  Body body = ParseBody(exchange);
  if (body.error) return body;
  Fields fields(body.document->root());
  std::string name;
  fields.Read("model", kNameBytesMax, &name);
  if (!fields.ok()) {
    body.error = fields.error();
  } else if (!model.Answers(name)) {
    body.error = ModelNotFound(name, model);
  }
  return body;
}

ApiError ModelNotFound(const std::string& name, std::span<const ModelBrief> have) {
  constexpr size_t kShown = 8;
  std::string names;
  for (size_t i = 0; i < std::min(have.size(), kShown); ++i) {
    names += (i == 0 ? "'" : ", '") + have[i].id + "'";
  }
  if (have.size() > kShown) names += " and " + std::to_string(have.size() - kShown) + " more";
  return {404, "the model '" + name + "' does not exist here; this server has " + names, "model",
          "model_not_found"};
}

ApiError ModelNotFound(const std::string& name, const ServedModel& have) {
  const ModelBrief brief = have.Brief();
  return ModelNotFound(name, {&brief, 1});
}

}  // namespace reprise::api
