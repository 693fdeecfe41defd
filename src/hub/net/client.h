// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "hub/net/proxy.h"
#include "hub/net/response_parser.h"
#include "hub/net/url.h"

namespace reprise::hub {

struct HttpOptions {
  Environment environment = ProcessEnvironment;
  const std::atomic<bool>* cancelled = nullptr;
  std::chrono::milliseconds connect_limit{10'000};  // TCP, the proxy and TLS, each
  std::chrono::milliseconds answer_limit{30'000};   // from the request to the end of the head
  std::chrono::milliseconds pause_limit{30'000};    // between two pieces of a body
};

struct HttpRequest {
  const char* method = "GET";  // or HEAD, POST
  Url url;
  std::string token;                   // "Authorization: Bearer ..."; empty: none
  std::optional<uint64_t> begin = {};  // the first byte that is wanted, "Range: bytes=N-"
  std::optional<uint64_t> end = {};    // one past the last that is wanted, with `begin`
  bool other_hosts = true;             // redirects to them are followed
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides those of every request
  std::string body = {};                                          // of a POST
};

// What came back in the end, after redirects.
struct HttpAnswer {
  ResponseHead head;
  ResponseHead first;  // before any redirect to another host; the same as head without one
  Url url;             // that gave `head`
};

// What a body is given to, piece by piece, after its head was seen.
struct BodySink {
  std::function<Status(const HttpAnswer&)> on_head;
  std::function<Status(std::string_view)> on_body;
};

// Sends one request over one connection and gives its answer to `sink`, whatever its status.
//
// 1. At most eight redirects are followed. The token goes to the origin (scheme, host, port) of the
//    request and to nobody else. From https nothing leads to http.
// 2. A body is whole, or the call fails: kInternal if it was cut.
// 3. Compressed bodies are refused; none are asked for.
//
// Errors are those of Stream; kFailedPrecondition for redirects that lead nowhere.
Result<HttpAnswer> Fetch(const HttpRequest& request, const HttpOptions& options,
                         const BodySink& sink);

}  // namespace reprise::hub
