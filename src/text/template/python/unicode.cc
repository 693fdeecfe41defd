// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/unicode.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/check.h"
#include "base/utf8.h"

namespace reprise::jinja {
namespace {

// Every `stride`-th code from first to last.
struct CodeRange {
  uint32_t first, last;
  uint8_t stride;
};
struct CodeShift {
  uint32_t first, last;
  uint8_t stride;
  int32_t delta;
};
struct CodeExpansion {
  uint32_t code;
  uint32_t to[3];
};

#include "text/template/python/unicode_tables.gen.h"

// The entry whose range holds `code`, or null. The tables are sorted and do not overlap.
template <typename Entry>
const Entry* FindEntry(std::span<const Entry> table, uint32_t code) {
  const auto after = std::upper_bound(table.begin(), table.end(), code,
                                      [](uint32_t c, const Entry& e) { return c < e.first; });
  if (after == table.begin()) return nullptr;
  const Entry& entry = *std::prev(after);
  return code <= entry.last && (code - entry.first) % entry.stride == 0 ? &entry : nullptr;
}

bool In(std::span<const CodeRange> table, uint32_t code) {
  return FindEntry(table, code) != nullptr;
}

void AppendMapped(std::span<const CodeShift> shifts, std::span<const CodeExpansion> special,
                  uint32_t code, std::string* out) {
  if (const CodeShift* shift = FindEntry(shifts, code)) {
    AppendUtf8(code + static_cast<uint32_t>(shift->delta), out);
    return;
  }
  for (const CodeExpansion& entry : special) {
    if (entry.code != code) continue;
    for (uint32_t to : entry.to) {
      if (to != 0) AppendUtf8(to, out);
    }
    return;
  }
  AppendUtf8(code, out);
}

void AppendUpper(uint32_t code, std::string* out) {
  AppendMapped(kToUpper, kToUpperSpecial, code, out);
}
void AppendTitle(uint32_t code, std::string* out) {
  AppendMapped(kToTitle, kToTitleSpecial, code, out);
}

constexpr uint32_t kSigma = 0x3A3;
constexpr uint32_t kFinalSigma = 0x3C2;

// A capital sigma ends a word if a cased letter stands before it and none after it.
bool IsFinalSigma(std::string_view before, std::string_view after) {
  bool cased_before = false;
  CodePoints left(before);
  for (uint32_t code; left.Next(&code);) {
    if (!In(kCaseIgnorable, code)) cased_before = In(kCased, code);
  }
  if (!cased_before) return false;
  CodePoints right(after);
  for (uint32_t code; right.Next(&code);) {
    if (!In(kCaseIgnorable, code)) return !In(kCased, code);
  }
  return true;
}

// Appends the lower case of the code point that ends at `end` in `text`. A word is looked at only
// for a capital sigma, within a window: no real word is longer.
void AppendLower(std::string_view text, size_t begin, size_t end, uint32_t code, std::string* out) {
  constexpr size_t kWindow = 64;
  if (code == kSigma) {
    size_t from = begin > kWindow ? begin - kWindow : 0;
    while (from < begin && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
    if (IsFinalSigma(text.substr(from, begin - from), text.substr(end))) {
      AppendUtf8(kFinalSigma, out);
      return;
    }
  }
  AppendMapped(kToLower, kToLowerSpecial, code, out);
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

template <typename Append>  // append(code, begin, end, out)
std::string Transform(std::string_view text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  CodePoints points(text);
  uint32_t code = 0;
  for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
    append(code, begin, points.offset(), &out);
  }
  return out;
}

}  // namespace

bool CodePoints::Next(uint32_t* code) {
  if (at_ >= text_.size()) return false;
  const size_t length = Utf8SequenceLength(text_.substr(at_));
  DCHECK(length > 0);
  *code = DecodeUtf8(text_.substr(at_), length);
  at_ += length == 0 ? 1 : length;
  return true;
}

size_t CodePointCount(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t CodePointOffset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

bool IsSpace(uint32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsLineBreak(uint32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool IsPrintable(uint32_t code) { return In(kPrintable, code); }

std::string Lower(std::string_view text) {
  if (IsAscii(text)) {
    std::string out(text);
    for (char& c : out) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    return out;
  }
  return Transform(text, [&](uint32_t code, size_t begin, size_t end, std::string* out) {
    AppendLower(text, begin, end, code, out);
  });
}

std::string Upper(std::string_view text) {
  return Transform(text,
                   [](uint32_t code, size_t, size_t, std::string* out) { AppendUpper(code, out); });
}

std::string Capitalized(std::string_view text) {
  return Transform(text, [&](uint32_t code, size_t begin, size_t end, std::string* out) {
    begin == 0 ? AppendTitle(code, out) : AppendLower(text, begin, end, code, out);
  });
}

std::string Titled(std::string_view text) {
  bool in_word = false;
  return Transform(text, [&](uint32_t code, size_t begin, size_t end, std::string* out) {
    in_word ? AppendLower(text, begin, end, code, out) : AppendTitle(code, out);
    in_word = In(kLowerCase, code) || In(kUpperCase, code) || In(kTitleCase, code);
  });
}

}  // namespace reprise::jinja
