// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace reprise {

// The byte that a token like "<0x0A>" stands for, or -1. Exactly two hexadecimal digits: "<0x-1>"
// and "<0x100>" are ordinary text.
inline int ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

}  // namespace reprise
