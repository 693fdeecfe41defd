// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise {

// GPT-2's alphabet writes every byte as a printable character: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF
// stand for themselves (as code points), the other 68 bytes are U+0100, U+0101... in their order.

// Appends the bytes that `text` stands for; returns false, having appended nothing, if a character
// is not of the alphabet.
bool AppendAlphabetBytes(std::string_view text, std::string* out);

// Appends `bytes` written in the alphabet.
void AppendAlphabetText(std::string_view bytes, std::string* out);

}  // namespace reprise
