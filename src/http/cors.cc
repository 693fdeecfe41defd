// SPDX-License-Identifier: Apache-2.0
#include "http/cors.h"

#include <algorithm>

namespace reprise::http {
namespace {

constexpr char kExposed[] = "x-request-id, request-id, retry-after";
constexpr char kSecondsKept[] = "600";

}  // namespace

bool IsAllowed(const Origins& origins, std::string_view origin) {
  return !origin.empty() && std::any_of(origins.begin(), origins.end(), [&](const auto& allowed) {
    return allowed == "*" || EqualIgnoringCase(allowed, origin);
  });
}

bool IsPreflight(const Request& request) {
  return request.method == "OPTIONS" && !request.Header("origin").empty() &&
         !request.Header("access-control-request-method").empty();
}

Response AnswerPreflight(const Request& request) {
  Response response;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  const std::string_view wanted = request.Header("access-control-request-headers");
  if (!wanted.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  response.headers.emplace_back("Access-Control-Max-Age", kSecondsKept);
  return response;
}

Headers CorsHeaders(const Origins& origins, const Request& request) {
  if (origins.empty()) return {};
  const std::string_view origin = request.Header("origin");
  Headers headers = {{"Vary", "Origin"}};  // caches must not give one page's answer to another
  if (!IsAllowed(origins, origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  return headers;
}

}  // namespace reprise::http
