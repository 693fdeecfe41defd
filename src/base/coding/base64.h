// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reprise {

// Base64: RFC 4648, section 4, its first alphabet. The one place in the program that knows it.
//
// 1. Bytes have one text, and FromBase64(ToBase64(bytes)) == bytes.
// 2. A text that is read is the text of its bytes, with or without its padding. All else is none:
//    other characters (line ends and the second alphabet, too), padding that is too short, too long
//    or not at the end, and bits behind the last byte that are not zero.
// 3. Memory is taken once: 4/3 and 3/4 of the input.

// With padding.
std::string ToBase64(std::string_view bytes);

std::optional<std::string> FromBase64(std::string_view text);

}  // namespace reprise
