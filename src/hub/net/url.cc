// SPDX-License-Identifier: Apache-2.0
#include "hub/net/url.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace reprise::hub {
namespace {

constexpr size_t kUrlBytesMax = 16 << 10;  // signed addresses of storage servers take some 2 KiB
constexpr size_t kHostBytesMax = 255;

bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsHost(std::string_view host, bool bracketed) {
  if (host.empty() || host.size() > kHostBytesMax) return false;
  return std::all_of(host.begin(), host.end(), [&](char c) {
    return IsAlnum(c) || c == '.' || c == '-' || c == '_' || (bracketed && c == ':');
  });
}

Status Wrong(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 80)) shown += c > ' ' && c < 0x7F ? c : '?';
  return InvalidArgument("'" + shown + "' is not an http or https address");
}

}  // namespace

bool Url::SameOrigin(const Url& other) const {
  return tls == other.tls && host == other.host && port == other.port;
}

std::string Url::authority() const {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (port != (tls ? 443 : 80)) text += ":" + std::to_string(port);
  return text;
}

std::string Url::ToString() const { return (tls ? "https://" : "http://") + authority() + target; }

Result<Url> Url::Parse(std::string_view text) {
  const std::string_view whole = text;
  if (text.size() > kUrlBytesMax) return InvalidArgument("an address of more than 16 KiB");
  // Bytes that could end a request line or a header are no part of an address.
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < 0x7F && c != '"' && c != '<' && c != '>' && c != '\\';
  });
  if (!printable) return Wrong(whole);
  Url url;
  std::string scheme(text.substr(0, text.find(':')));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(), Lower);
  if (scheme != "http" && scheme != "https") return Wrong(whole);
  url.tls = scheme == "https";
  url.port = url.tls ? 443 : 80;
  text.remove_prefix(scheme.size());
  if (!text.starts_with("://")) return Wrong(whole);
  text.remove_prefix(3);
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  std::string_view authority = text.substr(0, end);
  std::string_view target = text.substr(end);
  if (authority.find('@') != std::string_view::npos) {
    return InvalidArgument("an address with a user or a password in it is not used");
  }
  const bool bracketed = authority.starts_with("[");
  const size_t closing = bracketed ? authority.find(']') : 0;
  if (closing == std::string_view::npos) return Wrong(whole);
  const size_t colon = authority.find(':', closing);
  std::string_view host = authority.substr(0, colon);
  if (bracketed) {
    if (closing + 1 != host.size()) return Wrong(whole);
    host = host.substr(1, closing - 1);
  }
  if (!IsHost(host, bracketed)) return Wrong(whole);
  url.host = host;
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), Lower);
  if (colon != std::string_view::npos) {
    const std::string_view port = authority.substr(colon + 1);
    const auto [at, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc() || at != port.data() + port.size() || url.port == 0) {
      return Wrong(whole);
    }
  }
  target = target.substr(0, target.find('#'));
  url.target = target.starts_with("/") ? std::string(target) : "/" + std::string(target);
  return url;
}

Result<Url> Url::Resolve(std::string_view location) const {
  const std::string scheme = tls ? "https:" : "http:";
  if (location.starts_with("//")) return Parse(scheme + std::string(location));
  if (location.starts_with("/")) return Parse(scheme + "//" + authority() + std::string(location));
  return Parse(location);
}

std::string PercentEncode(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (IsAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~' || c == '/') {
      text += c;
      continue;
    }
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
    text += code;
  }
  return text;
}

}  // namespace reprise::hub
