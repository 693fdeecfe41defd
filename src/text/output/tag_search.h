// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace reprise {

// How many bytes at the end of `text` are the beginning of `tag`, but not all of it: what must be
// held back until more text comes.
inline size_t TagBegunAtEnd(std::string_view text, std::string_view tag) {
  size_t held = std::min(text.size(), tag.size() - 1);
  while (held > 0 && !text.ends_with(tag.substr(0, held))) --held;
  return held;
}

// Whether `text` is the beginning of `tag`, but not all of it.
inline bool Begins(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

// The white space of prompts: what templates and parsers strip around tags.
inline bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline size_t BlanksAtEnd(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsBlank(text[text.size() - 1 - count])) ++count;
  return count;
}

inline size_t BlanksAtStart(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && IsBlank(text[count])) ++count;
  return count;
}

}  // namespace reprise
