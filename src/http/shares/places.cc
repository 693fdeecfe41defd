// SPDX-License-Identifier: Apache-2.0
#include "http/shares/places.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

namespace reprise::http {

std::string ClientOf(const std::string& address) {
  in6_addr six = {};
  const std::string number = address.substr(0, address.find('%'));  // without its interface
  if (::inet_pton(AF_INET6, number.c_str(), &six) != 1) return address;
  char text[INET6_ADDRSTRLEN] = {};
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    return ::inet_ntop(AF_INET, &six.s6_addr[12], text, sizeof(text));
  }
  if (IN6_IS_ADDR_LOOPBACK(&six)) return number;
  std::fill(six.s6_addr + 8, six.s6_addr + 16, uint8_t{0});
  return std::string(::inet_ntop(AF_INET6, &six, text, sizeof(text))) + "/64";
}

bool Places::Enter(Connection* connection, const std::string& address, Connection** leaves) {
  *leaves = nullptr;
  const auto own = addresses_.find(address);
  const bool has_share = own != addresses_.end() && own->second.count >= address_max_;
  if (has_share || guests_.size() >= count_max_) {
    Address* giving = nullptr;
    if (has_share) {
      giving = &own->second;
    } else {
      for (auto& [name, other] : addresses_) {
        const bool more = giving == nullptr || other.count > giving->count;
        if (!other.waiting.empty() && more) giving = &other;
      }
    }
    if (giving == nullptr || giving->waiting.empty()) return false;
    *leaves = giving->waiting.front();
    Leave(*leaves);
  }
  const auto entered = addresses_.try_emplace(address).first;
  ++entered->second.count;
  guests_[connection] = Guest{.address = entered, .place = {}, .waiting = false};
  return true;
}

void Places::Leave(Connection* connection) {
  SetWaiting(connection, false);
  const auto guest = guests_.find(connection);
  if (guest == guests_.end()) return;
  const auto address = guest->second.address;
  if (--address->second.count == 0) addresses_.erase(address);
  guests_.erase(guest);
}

void Places::SetWaiting(Connection* connection, bool waiting) {
  const auto found = guests_.find(connection);
  if (found == guests_.end() || found->second.waiting == waiting) return;
  Guest& guest = found->second;
  guest.waiting = waiting;
  std::list<Connection*>& list = guest.address->second.waiting;
  if (waiting) {
    guest.place = list.insert(list.end(), connection);
  } else {
    list.erase(guest.place);
  }
}

}  // namespace reprise::http
