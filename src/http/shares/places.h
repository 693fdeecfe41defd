// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace reprise::http {

class Connection;

// Who has an address, as a socket writes it: an IPv4 address is one client. One client may have all
// addresses of an IPv6 network, so these are one: "2001:db8::/64".
std::string ClientOf(const std::string& address);

// Which connections there are, and which of them goes when one more comes.
//
// 1. There are at most `count_max` connections, and one address (as ClientOf has it) has at most
//    `address_max` of them.
// 2. A connection that waits for a request gives way. When there is no place for a new one, the
//    connection that has waited longest is closed: of the same address, if that has its share, else
//    of the address that has the most. So idle connections, however many, keep nobody out.
//
// Thread safety: none; the server thread.
class Places {
 public:
  Places(size_t count_max, size_t address_max) : count_max_(count_max), address_max_(address_max) {}

  // Makes a place for a connection of `address`. `leaves` is the one to be closed for it, or null.
  // False: there is no place, nobody enters.
  bool Enter(Connection* connection, const std::string& address, Connection** leaves);
  void Leave(Connection* connection);
  // Whether it waits for a request, from now on.
  void SetWaiting(Connection* connection, bool waiting);

  size_t size() const { return guests_.size(); }

 private:
  struct Address {
    size_t count = 0;
    std::list<Connection*> waiting;  // the longest first
  };
  using Addresses = std::map<std::string, Address>;
  struct Guest {
    Addresses::iterator address;
    std::list<Connection*>::iterator place;  // if it waits
    bool waiting = false;
  };

  const size_t count_max_;
  const size_t address_max_;
  Addresses addresses_;  // that have connections
  std::unordered_map<Connection*, Guest> guests_;
};

}  // namespace reprise::http
