// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reprise {

// The bytes of a base64 text (RFC 4648, its first alphabet; padding may be missing). None if it is
// not one.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace reprise
