// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/preamble.h"

#include <algorithm>

#include "http/message.h"

namespace reprise::api::anthropic {
namespace {

// Lines that begin like this are no part of the prompt. A new one needs a client that sends it.
constexpr std::string_view kVarying[] = {"x-anthropic-billing-header:"};

bool IsVarying(std::string_view line) {
  return std::any_of(std::begin(kVarying), std::end(kVarying), [&](std::string_view begin) {
    return http::EqualIgnoringCase(line.substr(0, begin.size()), begin);
  });
}

}  // namespace

std::string_view StripPreamble(std::string_view system) {
  bool stripped = false;
  while (IsVarying(system)) {
    stripped = true;
    const size_t end = system.find('\n');
    system.remove_prefix(end == std::string_view::npos ? system.size() : end + 1);
  }
  // Empty lines that set the header apart go with it.
  while (stripped && !system.empty() && (system[0] == '\n' || system[0] == '\r')) {
    system.remove_prefix(1);
  }
  return system;
}

}  // namespace reprise::api::anthropic
