// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex/char_set.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "text/unicode/classes.h"

namespace reprise::grammar {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;

RegexId ByteRange(RegexPool& pool, uint32_t first, uint32_t last) {
  return pool.Bytes(ByteSet::Range(static_cast<int>(first), static_cast<int>(last)));
}

// Codes of `length` bytes of UTF-8, [first, last]: by the first byte, with the whole blocks of
// continuation bytes in one piece.
RegexId Utf8Range(RegexPool& pool, uint32_t first, uint32_t last, int length) {
  static constexpr uint32_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  const auto tails = [&](auto&& self, uint32_t low, uint32_t high, int count) -> RegexId {
    if (count == 0) return RegexId::kEmpty;
    const auto shift = static_cast<uint32_t>(6 * (count - 1));
    const uint32_t mask = (uint32_t{1} << shift) - 1;
    const uint32_t head_low = low >> shift;
    const uint32_t head_high = high >> shift;
    const auto part = [&](uint32_t from, uint32_t to, uint32_t rest_low, uint32_t rest_high) {
      return pool.Concat(ByteRange(pool, 0x80 + from, 0x80 + to),
                         self(self, rest_low, rest_high, count - 1));
    };
    if (head_low == head_high) return part(head_low, head_low, low & mask, high & mask);
    std::vector<RegexId> parts;
    uint32_t from = head_low;
    uint32_t to = head_high;
    if ((low & mask) != 0) parts.push_back(part(from++, head_low, low & mask, mask));
    if ((high & mask) != mask) parts.push_back(part(to--, head_high, 0, high & mask));
    if (from <= to) parts.push_back(part(from, to, 0, mask));
    return pool.Or(std::move(parts));
  };
  if (length == 1) return ByteRange(pool, first, last);
  const auto shift = static_cast<uint32_t>(6 * (length - 1));
  const uint32_t mask = (uint32_t{1} << shift) - 1;
  std::vector<RegexId> parts;
  uint32_t head = first >> shift;
  while (head <= last >> shift) {
    const uint32_t low = head == first >> shift ? first & mask : 0;
    const uint32_t high = head == last >> shift ? last & mask : mask;
    // Lead bytes with the same tails are one set.
    uint32_t same = head;
    if (low == 0 && high == mask) {
      while (same + 1 < last >> shift || (same + 1 == last >> shift && (last & mask) == mask)) {
        ++same;
      }
    }
    parts.push_back(pool.Concat(ByteRange(pool, kLead[length] + head, kLead[length] + same),
                                tails(tails, low, high, length - 1)));
    head = same + 1;
  }
  return pool.Or(std::move(parts));
}

RegexId SpellUtf8(RegexPool& pool, const CharSet& set) {
  static constexpr uint32_t kLast[] = {0, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
  std::vector<RegexId> parts;
  for (const auto& range : set.ranges()) {
    for (int length = 1; length <= 4; ++length) {
      const uint32_t low = std::max(range.first, length == 1 ? 0 : kLast[length - 1] + 1);
      const uint32_t high = std::min(range.last, kLast[length]);
      if (low <= high) parts.push_back(Utf8Range(pool, low, high, length));
    }
  }
  return pool.Or(std::move(parts));
}

}  // namespace

CharSet::CharSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharSet CharSet::Of(uint32_t first, uint32_t last) {
  std::vector<Range> ranges;
  const auto add = [&](uint32_t low, uint32_t high) {
    if (low <= high) ranges.push_back({low, high});
  };
  last = std::min(last, kCodeMax);
  add(first, std::min(last, kSurrogateFirst - 1));
  add(std::max(first, kSurrogateLast + 1), last);
  return CharSet(std::move(ranges));
}

CharSet CharSet::Digits() { return Of('0', '9'); }

CharSet CharSet::Word() {
  return Of('0', '9').Union(Of('a', 'z')).Union(Of('A', 'Z')).Union(Of('_', '_'));
}

CharSet CharSet::Space() {
  CharSet set = Of(0x09, 0x0D).Union(Of(0x20, 0x20)).Union(Of(0xA0, 0xA0));
  set = set.Union(Of(0x1680, 0x1680)).Union(Of(0x2000, 0x200A)).Union(Of(0x2028, 0x2029));
  set = set.Union(Of(0x202F, 0x202F)).Union(Of(0x205F, 0x205F)).Union(Of(0x3000, 0x3000));
  return set.Union(Of(0xFEFF, 0xFEFF));
}

CharSet CharSet::ByClass(uint8_t bits) {
  std::vector<Range> ranges;
  for (uint32_t code = 0; code <= kCodeMax; ++code) {
    const bool surrogate = code >= kSurrogateFirst && code <= kSurrogateLast;
    if (surrogate || (unicode::ClassOf(code) & bits) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == code) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return CharSet(std::move(ranges));
}

Result<CharSet> CharSet::Category(std::string_view name) {
  struct Row {
    std::string_view name;
    std::string_view long_name;
    CharSet set;
  };
  static const auto* rows = new std::vector<Row>{
      {"L", "Letter", ByClass(unicode::kLetter)},
      {"Lu", "Uppercase_Letter", ByClass(unicode::kUpper)},
      {"Ll", "Lowercase_Letter", ByClass(unicode::kLower)},
      {"M", "Mark", ByClass(unicode::kMark)},
      {"N", "Number", ByClass(unicode::kNumber)},
      {"P", "Punctuation", ByClass(unicode::kPunctuation)},
      {"S", "Symbol", ByClass(unicode::kSymbol)},
  };
  for (const Row& row : *rows) {
    if (name == row.name || name == row.long_name) return row.set;
  }
  return Unimplemented("the character class \\p{" + std::string(name) + "} is not supported");
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(ranges));
}

CharSet CharSet::Minus(const CharSet& other) const {
  std::vector<Range> ranges;
  size_t at = 0;
  for (Range range : ranges_) {
    while (at < other.ranges_.size() && other.ranges_[at].last < range.first) ++at;
    bool left = true;
    for (size_t i = at; i < other.ranges_.size() && other.ranges_[i].first <= range.last; ++i) {
      const Range& cut = other.ranges_[i];
      if (cut.first > range.first) ranges.push_back({range.first, cut.first - 1});
      left = cut.last < range.last;
      if (!left) break;
      range.first = cut.last + 1;
    }
    if (left) ranges.push_back(range);
  }
  return CharSet(std::move(ranges));
}

bool CharSet::Has(uint32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](uint32_t c, const Range& range) { return c < range.first; });
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

void SpellChar(uint32_t code, Spelling spelling, std::string* out) {
  if (spelling == Spelling::kJsonString) {
    static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kNames = "\"\\bfnrt";
    const size_t at = code < 0x80 ? kShort.find(static_cast<char>(code)) : kShort.npos;
    if (at != kShort.npos) {
      *out += '\\';
      *out += kNames[at];
      return;
    }
    if (code < 0x20) {
      static constexpr char kHex[] = "0123456789abcdef";
      *out += "\\u00";
      *out += kHex[code >> 4];
      *out += kHex[code & 15];
      return;
    }
  }
  AppendUtf8(code, out);
}

std::string SpellText(std::string_view text, Spelling spelling) {
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    CHECK(length > 0);
    SpellChar(DecodeUtf8(text, length), spelling, &out);
    text.remove_prefix(length);
  }
  return out;
}

RegexId SpellSet(RegexPool& pool, const CharSet& set, Spelling spelling) {
  if (spelling == Spelling::kPlain) return SpellUtf8(pool, set);
  static const CharSet escaped =
      CharSet::Of(0, 0x1F).Union(CharSet::Of('"', '"')).Union(CharSet::Of('\\', '\\'));
  std::vector<RegexId> parts = {SpellUtf8(pool, set.Minus(escaped))};
  const CharSet must = set.Intersect(escaped);
  for (const auto& range : must.ranges()) {
    for (uint32_t code = range.first; code <= range.last; ++code) {
      std::string text;
      SpellChar(code, spelling, &text);
      parts.push_back(pool.Literal(text));
    }
  }
  return pool.Or(std::move(parts));
}

}  // namespace reprise::grammar
