// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/vocab/spec.h"

namespace reprise {

// Reads RWKV's vocabulary file (rwkv_vocab_v20230424.txt): lines of an id, a Python string or bytes
// literal and its length in bytes. Id 0, which the file leaves out, ends the text.
Result<VocabSpec> ParseRwkvVocab(std::string_view file);

// Appends the bytes of a Python literal's inside. In a string, \xE9 is the character U+00E9; in
// bytes it is the byte 0xE9. False if an escape is broken.
bool AppendPythonLiteral(std::string_view inside, bool is_bytes, std::string* out);

}  // namespace reprise
