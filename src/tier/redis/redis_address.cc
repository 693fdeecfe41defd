// SPDX-License-Identifier: Apache-2.0
#include "tier/redis/redis_address.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace reprise {
namespace {

constexpr size_t kUrlMax = 2048;

// Nothing here repeats what was given: it may be a password.
Status Bad(const char* what) {
  return InvalidArgument(std::string("the address of the store ") + what +
                         "; it is redis://[[user]:password@]host[:port][/db], rediss://, or "
                         "redis+sentinel://host[:port],host[:port]/name");
}

std::optional<std::string> Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    unsigned value = 0;
    const std::string_view two = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(two.data(), two.data() + two.size(), value, 16);
    if (two.size() != 2 || error != std::errc() || end != two.data() + 2) return std::nullopt;
    out.push_back(static_cast<char>(value));
    i += 2;
  }
  return out;
}

template <typename T>
bool ParseAll(std::string_view text, T* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

Status ParseEntry(std::string_view entry, RedisAddress* address) {
  const size_t colon = entry.find(':');
  if (colon == std::string_view::npos) return Bad("has a user but no password");
  const auto user = Unescape(entry.substr(0, colon));
  const auto password = Unescape(entry.substr(colon + 1));
  if (!user || !password) return Bad("has a % without two hexadecimal digits");
  address->user = *user;
  address->password = *password;
  return OkStatus();
}

// host[:port]
Status ParseHost(std::string_view text, std::string* name, uint16_t* port) {
  const size_t host_end = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  if (text.starts_with('[') && host_end == std::string_view::npos) return Bad("has a [ without ]");
  const size_t colon = text.find(':', host_end == std::string_view::npos ? 0 : host_end);
  if (colon != std::string_view::npos) {
    const bool number = ParseAll(text.substr(colon + 1), port);
    if (!number || *port == 0) return Bad("has a port that is not a number from 1 to 65535");
    text = text.substr(0, colon);
  }
  if (host_end != std::string_view::npos) {
    if (text.size() != host_end + 1) return Bad("has something behind ]");
    text = text.substr(1, host_end - 1);
  }
  const auto odd = [](char c) { return c <= ' ' || c == 0x7f; };
  if (text.empty() || std::any_of(text.begin(), text.end(), odd)) return Bad("has no host");
  *name = text;
  return OkStatus();
}

Status ParseDatabase(std::string_view text, RedisAddress* address) {
  if (text.empty() || (ParseAll(text, &address->db) && address->db >= 0)) return OkStatus();
  return Bad("has a database that is not a number");
}

// host[:port][,host[:port]]/name[/db]
Status ParseSentinels(std::string_view text, RedisAddress* address) {
  constexpr uint16_t kPort = 26379;
  const size_t slash = text.find('/');
  std::string_view name = slash == std::string_view::npos ? "" : text.substr(slash + 1);
  if (const size_t end = name.find('/'); end != std::string_view::npos) {
    REPRISE_TRY(ParseDatabase(name.substr(end + 1), address));
    name = name.substr(0, end);
  }
  const auto master = Unescape(name);
  if (!master || master->empty()) return Bad("does not say which master the Sentinels are to name");
  address->master = *master;
  std::string_view hosts = text.substr(0, slash);
  for (bool more = true; more;) {
    const size_t comma = hosts.find(',');
    more = comma != std::string_view::npos;
    RedisAddress::Host host{"", kPort};
    REPRISE_TRY(ParseHost(hosts.substr(0, comma), &host.name, &host.port));
    address->sentinels.push_back(std::move(host));
    const bool many = address->sentinels.size() > RedisAddress::kSentinelsMax;
    if (many) return Bad("has too many Sentinels");
    if (more) hosts.remove_prefix(comma + 1);
  }
  return OkStatus();
}

std::string ShowHost(std::string_view name, uint16_t port) {
  const bool v6 = name.find(':') != std::string::npos;
  return (v6 ? "[" + std::string(name) + "]" : std::string(name)) + ":" + std::to_string(port);
}

}  // namespace

Result<RedisAddress> RedisAddress::Parse(std::string_view url) {
  RedisAddress address;
  if (url.size() > kUrlMax) return Bad("is too long");
  const size_t scheme_end = url.find("://");
  const std::string_view scheme = url.substr(0, scheme_end);
  const bool sentinels = scheme == "redis+sentinel" || scheme == "rediss+sentinel";
  const bool known = scheme == "redis" || scheme == "rediss" || sentinels;
  if (scheme_end == std::string_view::npos || !known) {
    return Bad("must begin with redis:// or rediss://");
  }
  address.tls = scheme.starts_with("rediss");
  url.remove_prefix(scheme_end + 3);
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    REPRISE_TRY(ParseEntry(url.substr(0, at), &address));
    url.remove_prefix(at + 1);
  }
  if (sentinels) {
    REPRISE_TRY(ParseSentinels(url, &address));
    return address;
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    REPRISE_TRY(ParseDatabase(url.substr(slash + 1), &address));
    url = url.substr(0, slash);
  }
  REPRISE_TRY(ParseHost(url, &address.host, &address.port));
  return address;
}

std::string RedisAddress::Show() const {
  const std::string scheme = tls ? "rediss" : "redis";
  const std::string end = "/" + std::to_string(db);
  if (sentinels.empty()) return scheme + "://" + ShowHost(host, port) + end;
  std::string hosts;
  for (const Host& one : sentinels) {
    hosts += (hosts.empty() ? "" : ",") + ShowHost(one.name, one.port);
  }
  return scheme + "+sentinel://" + hosts + "/" + master + end;
}

}  // namespace reprise
