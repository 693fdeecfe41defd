// SPDX-License-Identifier: Apache-2.0
#include "text/subword/bpe/char_borders.h"

#include <algorithm>

namespace reprise {
namespace {

constexpr size_t kContextBytes = 2;

bool IsContinuation(char c) { return (c & 0xC0) == 0x80; }

// How many bytes the character with this lead byte has; 1 for what is no lead byte.
size_t CharLength(char lead) {
  const uint8_t byte = static_cast<uint8_t>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

uint64_t Context(std::string_view text, size_t border, size_t before, size_t after) {
  uint64_t key = before << 4 | after;
  for (const char c : text.substr(border - before, before + after)) {
    key = key << 8 | static_cast<uint8_t>(c);
  }
  return key;
}

}  // namespace

void CharBorders::AddToken(std::string_view token) {
  size_t begin = 0;
  while (begin < token.size() && IsContinuation(token[begin])) ++begin;
  if (begin > 0 && begin < token.size()) AddBorder(token, begin);
  size_t end = token.size() - 1;
  while (end > 0 && IsContinuation(token[end])) --end;
  if (end > 0 && CharLength(token[end]) > token.size() - end) AddBorder(token, end);
}

void CharBorders::AddBorder(std::string_view token, size_t border) {
  pairs_.set(size_t{static_cast<uint8_t>(token[border - 1])} << 8 |
             static_cast<uint8_t>(token[border]));
  contexts_.insert(Context(token, border, std::min(border, kContextBytes),
                           std::min(token.size() - border, kContextBytes)));
}

bool CharBorders::HasContext(std::string_view text, size_t border) const {
  for (size_t before = 1; before <= std::min(border, kContextBytes); ++before) {
    for (size_t after = 1; after <= std::min(text.size() - border, kContextBytes); ++after) {
      if (contexts_.contains(Context(text, border, before, after))) return true;
    }
  }
  return false;
}

}  // namespace reprise
