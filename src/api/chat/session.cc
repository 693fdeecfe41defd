// SPDX-License-Identifier: Apache-2.0
#include "api/chat/session.h"

#include <algorithm>
#include <string_view>

namespace reprise::api {
namespace {

constexpr std::string_view kHeaders[] = {"x-claude-code-session-id", "session-id", "x-session-id"};
constexpr size_t kBytesMax = 1024;  // as of prompt_cache_key

bool IsVisible(char c) { return c >= 0x20 && c < 0x7f; }

}  // namespace

std::optional<ApiError> ReadSession(const http::Request& request, std::string* session) {
  for (const std::string_view name : kHeaders) {
    const std::string_view value = request.Header(name);
    if (value.empty()) continue;
    if (value.size() > kBytesMax || !std::all_of(value.begin(), value.end(), IsVisible)) {
      ApiError error;
      error.param = name;
      error.message = "header " + error.param + " must be at most " + std::to_string(kBytesMax) +
                      " visible ASCII characters";
      return error;
    }
    *session = value;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace reprise::api
