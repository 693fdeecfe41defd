// SPDX-License-Identifier: Apache-2.0
#include "http/router.h"

#include <algorithm>
#include <utility>

namespace reprise::http {
namespace {

bool Covers(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(1);
  return path.starts_with(pattern) && path.size() > pattern.size();
}

}  // namespace

void Router::Add(std::string method, std::string path, RunOn run_on, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), run_on, std::move(handler)});
}

std::string Router::FindSimilar(std::string_view path) const {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path.size() < 2) return "";
  for (const Route& route : routes_) {
    const std::string_view known = route.path;
    if (known.size() < 2 || known.ends_with("/*")) continue;
    if (known.ends_with(path) || path.ends_with(known)) return route.path;
  }
  return "";
}

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  const Match match = FindExact(method, path);
  const bool slash = path.size() > 1 && path.ends_with('/');
  if (match.route != nullptr || !match.allowed.empty() || !slash) return match;
  path.remove_suffix(1);
  return FindExact(method, path);
}

Router::Match Router::FindExact(std::string_view method, std::string_view path) const {
  Match match;
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : routes_) {
    if (!Covers(route.path, path)) continue;
    if (route.method == wanted) {
      match.route = &route;
      return match;
    }
    if (match.allowed.find(route.method) != std::string::npos) continue;
    match.allowed += (match.allowed.empty() ? "" : ", ") + route.method;
  }
  return match;
}

}  // namespace reprise::http
