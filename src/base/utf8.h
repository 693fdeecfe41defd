// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

// The length in bytes (1 to 4) of the valid UTF-8 sequence that `text` begins with, or 0 if it
// begins with none: a stray continuation byte, an overlong form, a surrogate, a value above
// U+10FFFF, or a sequence that is cut off.
size_t Utf8SequenceLength(std::string_view text);

// Decodes the sequence at the start of `text`. REQUIRES: Utf8SequenceLength(text) == length > 0.
uint32_t DecodeUtf8(std::string_view text, size_t length);

bool IsValidUtf8(std::string_view text);

// REQUIRES: code <= 0x10FFFF and not a surrogate.
void AppendUtf8(uint32_t code, std::string* out);

}  // namespace reprise
