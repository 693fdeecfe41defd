// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise::unicode {

// True if NFC cannot change `text`; false if it might. ASCII costs next to nothing.
bool IsSurelyNfc(std::string_view text);

// Appends the canonical composition (NFC, Unicode 9.0) of `text`. Invalid bytes are copied; they
// are starters that compose with nothing. Linear, except that a run of combining marks is sorted.
void AppendNfc(std::string_view text, std::string* out);

}  // namespace reprise::unicode
