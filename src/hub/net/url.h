// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

// An address of HTTP. Parsing is strict, because addresses also come from a server (redirects): a
// scheme of http or https, a host, a port, and a path of printable ASCII. User and password are
// refused: a redirect must not be able to set them.
struct Url {
  bool tls = true;
  std::string host;  // a name or an address; of IPv6 without brackets
  uint16_t port = 443;
  std::string target = "/";  // path and query, as the request line has them

  // Scheme, host and port: what a token belongs to.
  bool SameOrigin(const Url& other) const;
  // "host", or "host:port" where the port is not the scheme's, with brackets around IPv6.
  std::string authority() const;
  std::string ToString() const;

  static Result<Url> Parse(std::string_view text);
  // What a Location header of an answer from this address means: a whole address, "//host/path",
  // or a path.
  Result<Url> Resolve(std::string_view location) const;
};

// The text with everything but letters, digits, "-._~" and "/" as %XX.
std::string PercentEncode(std::string_view path);

}  // namespace reprise::hub
