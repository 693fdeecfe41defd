// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise::http {

// What clients may send. A head or body beyond its limit is refused before it is read.
struct Limits {
  size_t head_bytes_max = size_t{16} << 10;
  size_t header_count_max = 100;
  size_t body_bytes_max = size_t{32} << 20;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string path;   // percent-decoded, without query
  std::string query;  // as sent, after the '?'
  Headers headers;
  std::string body;
  std::string id;  // the client's x-request-id if it is a sane one, else ours
  // Set by the server itself where it asks in a tenant's name, without a client; never by a client.
  std::string as_tenant = {};

  // The value of the first header of that name (any case), or an empty view.
  std::string_view Header(std::string_view name) const;
  // The percent-decoded value of ?name=value, or an empty string.
  std::string QueryValue(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  std::string body;
  std::string reason = {};  // of a refusal, for the log; not sent
};

std::string_view ReasonPhrase(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT", for the Date header. `seconds`: since 1970.
std::string FormatDate(int64_t seconds);

bool EqualIgnoringCase(std::string_view a, std::string_view b);

// Decodes %XX. False if an escape is broken.
bool PercentDecode(std::string_view text, std::string* out);

}  // namespace reprise::http
