// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/net/url.h"

namespace reprise::hub {

// Looks up an environment variable; empty if it is not set.
using Environment = std::function<std::string(const char* name)>;
// That of this process.
std::string ProcessEnvironment(const char* name);

// An HTTP proxy, as HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY (or in lower case) name it.
struct Proxy {
  std::string host;
  uint16_t port = 0;
  std::string credentials;  // "user:password" in Base64; empty: none
};

// The proxy that `url` is reached through; nothing if it is reached directly. Fails if the value is
// of a kind that is not supported (SOCKS, or TLS to the proxy).
Result<std::optional<Proxy>> FindProxy(const Url& url, const Environment& environment);

}  // namespace reprise::hub
