// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::jinja {

// Python's view of characters: str.isspace(), str.upper() and their like, from the tables that
// tools/make_unicode_tables.py writes. REQUIRES: text is valid UTF-8, everywhere here.

bool IsSpace(uint32_t code);      // what strip() and split() take as white space
bool IsLineBreak(uint32_t code);  // where splitlines() cuts
bool IsPrintable(uint32_t code);  // what repr() does not escape

std::string Lower(std::string_view text);
std::string Upper(std::string_view text);
std::string Capitalized(std::string_view text);  // first character in title case, the rest lower
std::string Titled(std::string_view text);       // each run of letters like that

// Walks the code points of a text.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) : text_(text) {}
  bool Next(uint32_t* code);
  size_t offset() const { return at_; }  // of the next code point, in bytes

 private:
  const std::string_view text_;
  size_t at_ = 0;
};

size_t CodePointCount(std::string_view text);
// The byte offset of code point `index`; the size of the text if there are not so many.
size_t CodePointOffset(std::string_view text, size_t index);

}  // namespace reprise::jinja
