// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise {

// Where a Redis (or Valkey) is and how it is entered:
//
//   redis://[[user]:password@]host[:port][/db]      rediss:// with TLS
//
// User and password may have %XX. IPv6 addresses stand in brackets.
struct RedisAddress {
  bool tls = false;
  std::string user;  // empty: Redis's default
  std::string password;
  std::string host;
  uint16_t port = 6379;
  int db = 0;

  static Result<RedisAddress> Parse(std::string_view url);
  // For people and logs: without user and password.
  std::string Show() const;
};

}  // namespace reprise
