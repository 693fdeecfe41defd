// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/piece.h"

namespace reprise {

// A scanner is a hand-written matcher of one well-known pre-tokenizer pattern: it cuts a text into
// the matches and the gaps between them, as a split with behaviour "isolated" does. Linear in the
// text: no position is looked at more than a constant number of times.
//
// Invalid UTF-8 is allowed: a byte that belongs to no code point counts as a control character.
// Offsets in the pieces begin at `base`.
using Scanner = void (*)(std::string_view text, uint32_t base, std::vector<Piece>* pieces);

// The patterns, as tokenizer.json files write them. GPT-2's (also GPT-NeoX, OLMo, Mamba...):
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// DeepSeek-V3's is a chain: numbers, then CJK runs, then this one.
inline constexpr std::string_view kDeepSeek3Pattern =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
inline constexpr std::string_view kCjkPattern = "[一-龥぀-ゟ゠-ヿ]+";
inline constexpr std::string_view kNumberPattern = R"(\p{N})";
inline constexpr std::string_view kNumber3Pattern = R"(\p{N}{1,3})";
inline constexpr std::string_view kNumbersPattern = R"(\p{N}+)";

// The scanner for exactly this pattern, or null.
Scanner FindScanner(std::string_view pattern);

}  // namespace reprise
