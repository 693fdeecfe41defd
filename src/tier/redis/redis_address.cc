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
                         "; it is redis://[[user]:password@]host[:port][/db], or rediss://");
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

}  // namespace

Result<RedisAddress> RedisAddress::Parse(std::string_view url) {
  RedisAddress address;
  if (url.size() > kUrlMax) return Bad("is too long");
  if (url.starts_with("rediss://")) {
    address.tls = true;
    url.remove_prefix(9);
  } else if (url.starts_with("redis://")) {
    url.remove_prefix(8);
  } else {
    return Bad("must begin with redis:// or rediss://");
  }
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    REPRISE_TRY(ParseEntry(url.substr(0, at), &address));
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    const std::string_view db = url.substr(slash + 1);
    if (!db.empty() && (!ParseAll(db, &address.db) || address.db < 0)) {
      return Bad("has a database that is no number");
    }
    url = url.substr(0, slash);
  }
  const size_t host_end = url.starts_with('[') ? url.find(']') : std::string_view::npos;
  if (url.starts_with('[') && host_end == std::string_view::npos) return Bad("has a [ without ]");
  const size_t colon = url.find(':', host_end == std::string_view::npos ? 0 : host_end);
  if (colon != std::string_view::npos) {
    if (!ParseAll(url.substr(colon + 1), &address.port) || address.port == 0) {
      return Bad("has a port that is none");
    }
    url = url.substr(0, colon);
  }
  if (host_end != std::string_view::npos) {
    if (url.size() != host_end + 1) return Bad("has something behind ]");
    url = url.substr(1, host_end - 1);
  }
  const auto odd = [](char c) { return c <= ' ' || c == 0x7f; };
  if (url.empty() || std::any_of(url.begin(), url.end(), odd)) return Bad("has no host");
  address.host = url;
  return address;
}

std::string RedisAddress::Show() const {
  const bool v6 = host.find(':') != std::string::npos;
  return std::string(tls ? "rediss://" : "redis://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(port) + "/" + std::to_string(db);
}

}  // namespace reprise
