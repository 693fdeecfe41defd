// SPDX-License-Identifier: Apache-2.0
#include "hub/net/proxy.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/coding/base64.h"

namespace reprise::hub {
namespace {

std::string Lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// Programs read the lower case first: HTTP_PROXY may be a header that a web server passed on.
std::string Find(const char* lower_name, const Environment& environment) {
  std::string value = environment(lower_name);
  if (!value.empty()) return value;
  std::string upper = lower_name;
  for (char& c : upper) c = c == '_' ? c : static_cast<char>(c - 32);
  return environment(upper.c_str());
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(text[i + 1]) != 0 &&
        std::isxdigit(text[i + 2]) != 0) {
      decoded +=
          static_cast<char>(std::strtol(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Whether one entry of NO_PROXY ("example.com", ".example.com", "host:8080", "*") means `url`.
bool Excludes(std::string_view entry, const Url& url) {
  if (entry == "*") return true;
  const size_t colon = entry.rfind(':');
  if (colon != std::string_view::npos && entry.find(':') == colon) {
    if (entry.substr(colon + 1) != std::to_string(url.port)) return false;
    entry = entry.substr(0, colon);
  }
  if (entry.starts_with("*")) entry.remove_prefix(1);
  if (entry.starts_with(".")) entry.remove_prefix(1);
  if (entry.empty()) return false;
  return url.host == entry ||
         (url.host.ends_with(entry) && url.host[url.host.size() - entry.size() - 1] == '.');
}

bool IsExcluded(const Url& url, std::string_view list) {
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(", "), list.size());
    if (end > 0 && Excludes(Lowered(std::string(list.substr(0, end))), url)) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::string ProcessEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::optional<Proxy>> FindProxy(const Url& url, const Environment& environment) {
  std::string value = Find(url.tls ? "https_proxy" : "http_proxy", environment);
  if (value.empty()) value = Find("all_proxy", environment);
  if (value.empty() || IsExcluded(url, Find("no_proxy", environment))) {
    return std::optional<Proxy>();
  }
  if (value.find("://") == std::string::npos) value = "http://" + value;
  Proxy proxy;
  const size_t begin = value.find("://") + 3;
  const size_t end = std::min(value.find('/', begin), value.size());
  const size_t at = value.rfind('@', end);
  if (at != std::string::npos && at >= begin) {
    proxy.credentials = ToBase64(PercentDecoded(std::string_view(value).substr(begin, at - begin)));
    value.erase(begin, at + 1 - begin);
  }
  const Result<Url> parsed = Url::Parse(value);
  if (!parsed.ok() || parsed->tls) {
    return InvalidArgument(
        "the proxy in the environment (https_proxy, http_proxy or all_proxy) is not an address "
        "like http://proxy.example:3128; other kinds of proxies are not supported");
  }
  proxy.host = parsed->host;
  proxy.port = parsed->port;
  return std::optional<Proxy>(proxy);
}

}  // namespace reprise::hub
