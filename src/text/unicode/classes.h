// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::unicode {

// The general categories that pre-tokenizers ask for, as bits, by Unicode 16.0 (see
// tools/gen_unicode.py for why that version).
inline constexpr uint8_t kLetter = 1;        // \p{L}
inline constexpr uint8_t kMark = 2;          // \p{M}
inline constexpr uint8_t kNumber = 4;        // \p{N}
inline constexpr uint8_t kSpace = 8;         // \s, the property White_Space
inline constexpr uint8_t kPunctuation = 16;  // \p{P}
inline constexpr uint8_t kSymbol = 32;       // \p{S}
inline constexpr uint8_t kUpper = 64;        // \p{Lu} and \p{Lt}
inline constexpr uint8_t kLower = 128;       // \p{Ll}

extern const uint8_t kClassIndex[];   // [0x110000 / 256]
extern const uint8_t kClassBlocks[];  // [blocks, 256]

// REQUIRES: code <= 0x10FFFF.
inline uint8_t ClassOf(uint32_t code) {
  return kClassBlocks[size_t{kClassIndex[code >> 8]} << 8 | (code & 0xFF)];
}

// Characters that Unicode 14.0, and so the PCRE2 of Debian 12, does not know, in ascending order.
struct CodeRange {
  uint32_t first;
  uint32_t last;
};
extern const CodeRange kNewerRanges[];
extern const size_t kNewerRangeCount;

struct DecodedChar {
  uint32_t code;
  uint32_t length;  // in bytes, at least 1
};

// What a byte that belongs to no valid sequence counts as: SUBSTITUTE, a control character.
inline constexpr uint32_t kInvalidByte = 0x1A;

// The code point at the start of [at, end); an invalid byte is one character, kInvalidByte. The
// same rules as Utf8SequenceLength, inlined for scanners. REQUIRES: at < end.
inline DecodedChar DecodeChar(const char* at, const char* end) {
  const auto byte = [at](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(at[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t left = static_cast<size_t>(end - at);
  const auto tail = [&](size_t i) { return byte(i) ^ 0x80; };  // below 0x40 for continuations
  if (lead < 0xE0) {
    if (lead < 0xC2 || left < 2 || tail(1) > 0x3F) return {kInvalidByte, 1};
    return {(lead & 0x1F) << 6 | tail(1), 2};
  }
  if (lead < 0xF0) {
    if (left < 3 || (tail(1) | tail(2)) > 0x3F) return {kInvalidByte, 1};
    const uint32_t code = (lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return {kInvalidByte, 1};
    return {code, 3};
  }
  if (lead > 0xF4 || left < 4 || (tail(1) | tail(2) | tail(3)) > 0x3F) return {kInvalidByte, 1};
  const uint32_t code = (lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  if (code < 0x10000 || code > 0x10FFFF) return {kInvalidByte, 1};
  return {code, 4};
}

}  // namespace reprise::unicode
