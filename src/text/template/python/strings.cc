// SPDX-License-Identifier: Apache-2.0
#include "text/template/python/strings.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Bytes of the first and of the last code point.
size_t FrontLength(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && IsContinuation(text[length])) ++length;
  return length;
}

size_t BackLength(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && IsContinuation(text[text.size() - length])) ++length;
  return length;
}

bool IsSpaceText(std::string_view character) {
  const size_t length = Utf8SequenceLength(character);
  return length > 0 && IsSpace(DecodeUtf8(character, length));
}

// The characters that strip() takes away.
class StripSet {
 public:
  explicit StripSet(std::optional<std::string_view> chars) : white_space_(!chars) {
    if (!chars) return;
    CodePoints points(*chars);
    for (uint32_t code; points.Next(&code);) codes_.push_back(code);
    std::sort(codes_.begin(), codes_.end());
  }
  bool Has(std::string_view character) const {
    const size_t length = Utf8SequenceLength(character);
    if (length == 0) return false;
    const uint32_t code = DecodeUtf8(character, length);
    return white_space_ ? IsSpace(code) : std::binary_search(codes_.begin(), codes_.end(), code);
  }

 private:
  const bool white_space_;
  std::vector<uint32_t> codes_;
};

// Bytes of white space that the text begins with.
size_t SpacePrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = FrontLength(text.substr(at));
    if (!IsSpaceText(text.substr(at, length))) break;
    at += length;
  }
  return at;
}

size_t WordPrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = FrontLength(text.substr(at));
    if (IsSpaceText(text.substr(at, length))) break;
    at += length;
  }
  return at;
}

size_t WordSuffix(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const size_t length = BackLength(text.substr(0, text.size() - size));
    if (IsSpaceText(text.substr(text.size() - size - length, length))) break;
    size += length;
  }
  return size;
}

std::vector<std::string_view> SplitWords(std::string_view text, int64_t splits) {
  std::vector<std::string_view> words;
  text.remove_prefix(SpacePrefix(text));
  while (!text.empty()) {
    if (splits >= 0 && static_cast<int64_t>(words.size()) == splits) {
      words.push_back(Strip(text, Side::kRight));
      break;
    }
    const size_t word = WordPrefix(text);
    words.push_back(text.substr(0, word));
    text.remove_prefix(word);
    text.remove_prefix(SpacePrefix(text));
  }
  return words;
}

std::vector<std::string_view> SplitWordsFromRight(std::string_view text, int64_t splits) {
  std::vector<std::string_view> words;
  text = Strip(text, Side::kRight);
  while (!text.empty()) {
    if (splits >= 0 && static_cast<int64_t>(words.size()) == splits) {
      words.push_back(Strip(text, Side::kLeft));
      break;
    }
    const size_t word = WordSuffix(text);
    words.push_back(text.substr(text.size() - word));
    text.remove_suffix(word);
    text = Strip(text, Side::kRight);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace

size_t FindFirst(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  if (part.size() > text.size() - from) return std::string_view::npos;  // also: no null to memmem
  // memmem is linear where string_view::find is not.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 32;
  if (part.size() <= kShort) return text.rfind(part);
  const std::string text_reversed(text.rbegin(), text.rend());
  const std::string part_reversed(part.rbegin(), part.rend());
  const size_t found = FindFirst(text_reversed, part_reversed);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::string_view Strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  const StripSet set(chars);
  if (side != Side::kRight) {
    while (!text.empty() && set.Has(text.substr(0, FrontLength(text)))) {
      text.remove_prefix(FrontLength(text));
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty() && set.Has(text.substr(text.size() - BackLength(text)))) {
      text.remove_suffix(BackLength(text));
    }
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t splits) {
  if (!separator) return SplitWords(text, splits);
  std::vector<std::string_view> parts;
  while (splits < 0 || static_cast<int64_t>(parts.size()) < splits) {
    const size_t found = FindFirst(text, *separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator->size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> SplitFromRight(std::string_view text,
                                             std::optional<std::string_view> separator,
                                             int64_t splits) {
  if (!separator) return SplitWordsFromRight(text, splits);
  const std::string mirror(text.rbegin(), text.rend());
  const std::string mark(separator->rbegin(), separator->rend());
  std::vector<std::string_view> parts;
  size_t at = 0;  // in the mirror
  while (splits < 0 || static_cast<int64_t>(parts.size()) < splits) {
    const size_t found = FindFirst(mirror, mark, at);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(text.size() - found, found - at));
    at = found + mark.size();
  }
  parts.push_back(text.substr(0, text.size() - at));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  CodePoints points(text);
  uint32_t code = 0;
  for (size_t begin = 0; points.Next(&code); begin = points.offset()) {
    if (!IsLineBreak(code) || begin < line) continue;
    size_t next = points.offset();
    if (code == '\r' && next < text.size() && text[next] == '\n') ++next;
    lines.push_back(text.substr(line, (keep_ends ? next : begin) - line));
    line = next;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

size_t CountOf(std::string_view text, std::string_view part) {
  if (part.empty()) return CodePointCount(text) + 1;
  size_t count = 0;
  for (size_t at = FindFirst(text, part); at != std::string_view::npos;
       at = FindFirst(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

size_t ReplacedBytes(std::string_view text, std::string_view from, std::string_view to,
                     int64_t count) {
  size_t found = CountOf(text, from);
  if (count >= 0) found = std::min(found, static_cast<size_t>(count));
  size_t added = 0;
  if (__builtin_mul_overflow(found, to.size(), &added)) return SIZE_MAX;
  return text.size() - found * from.size() + added;
}

std::vector<size_t> FindAll(std::string_view text, std::string_view part, int64_t count) {
  std::vector<size_t> finds;
  for (size_t at = 0; count != 0; --count) {
    const size_t found = FindFirst(text, part, at);
    if (found == std::string_view::npos) break;
    finds.push_back(found);
    if (!part.empty()) {
      at = found + part.size();
    } else if (at == text.size()) {
      break;
    } else {
      at += FrontLength(text.substr(at));
    }
  }
  return finds;
}

std::string EscapedHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace reprise::jinja
