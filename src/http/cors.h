// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace reprise::http {

// Cross-origin requests: which web pages elsewhere may ask this server, as browsers enforce it.
// Origins are written as browsers send them, "https://chat.example:8443"; "*" means any.
using Origins = std::vector<std::string>;

bool IsAllowed(const Origins& origins, std::string_view origin);

// What a browser asks before a page may send a request: OPTIONS with the request's method.
bool IsPreflight(const Request& request);
// The answer to one, without the headers below.
Response AnswerPreflight(const Request& request);

// The headers that let the page read the answer; none if its origin is not allowed, or there is
// none.
Headers CorsHeaders(const Origins& origins, const Request& request);

}  // namespace reprise::http
