// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise {

// Where a Redis (or Valkey) is and how it is entered:
//
//   redis://[[user]:password@]host[:port][/db]                            rediss:// with TLS
//   redis+sentinel://[[user]:password@]host[:port][,host[:port]]/name[/db]    rediss+sentinel://
//
// The second names Sentinels, who know which Redis is the master of that name now. User and
// password may have %XX; Sentinels that want some are told the same. IPv6 stands in brackets.
struct RedisAddress {
  static constexpr size_t kSentinelsMax = 16;
  struct Host {
    std::string name;
    uint16_t port = 0;
  };

  bool tls = false;
  std::string user;  // empty: Redis's default
  std::string password;
  std::string host;  // empty: that of the master
  uint16_t port = 6379;
  std::vector<Host> sentinels;
  std::string master;  // its name
  int db = 0;

  static Result<RedisAddress> Parse(std::string_view url);
  // For people and logs: without user and password.
  std::string Show() const;
};

}  // namespace reprise
