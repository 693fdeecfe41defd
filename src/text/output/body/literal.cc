// SPDX-License-Identifier: Apache-2.0
#include "text/output/body/literal.h"

#include <cstdint>

#include "base/json.h"
#include "text/output/body/body.h"
#include "text/output/tag_search.h"

namespace reprise {
namespace {

constexpr size_t kDepthMax = 64;
constexpr size_t kWordBytesMax = 256;
constexpr char kHexDigits[] = "0123456789abcdef";

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool EndsWord(char c) {
  return IsBlank(c) || c == ',' || c == ':' || c == ')' || c == ']' || c == '}';
}

void AppendUnit(uint32_t unit, std::string* out) {
  *out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) *out += kHexDigits[(unit >> shift) & 15];
}

}  // namespace

LiteralReader::State LiteralReader::Step(char c, std::string* out) {
  if (at_ == At::kEnd) return State::kDone;
  if (!Take(c, out)) return at_ == At::kEnd ? State::kDone : State::kBroken;
  return State::kReading;
}

bool LiteralReader::Finish(std::string* out) {
  if (at_ == At::kQuote) EndString(out);
  if (at_ == At::kWord && closers_.empty()) return EndWord(out) && !key_;
  return at_ == At::kEnd || (at_ == At::kAfter && closers_.empty());
}

bool LiteralReader::Take(char c, std::string* out) {
  switch (at_) {
    case At::kValue:
    case At::kItem:
    case At::kKey:
      return IsBlank(c) || TakeStart(c, out);
    case At::kString:
      if (c == '\\') {
        at_ = At::kEscape;
      } else if (c == opener_) {
        at_ = At::kQuote;
      } else {
        AppendJsonByte(c, out);
      }
      return true;
    case At::kEscape:
      return TakeEscape(c, out);
    case At::kHex:
      return TakeHex(c, out);
    case At::kQuote:
      if (EndsWord(c)) {
        EndString(out);
        return Take(c, out);
      }
      AppendJsonByte(opener_, out);
      at_ = At::kString;
      return Take(c, out);
    case At::kQuoteBegin:
    case At::kMarked:
      return TakeMarked(c, out);
    case At::kWord:
      if (EndsWord(c)) return EndWord(out) && Take(c, out);
      held_ += c;
      return held_.size() <= kWordBytesMax;
    case At::kColon:
      if (IsBlank(c)) return true;
      if (c != ':') return false;
      *out += ": ";
      at_ = At::kValue;
      return true;
    case At::kAfter:
      return TakeAfter(c, out);
    case At::kEnd:
      return false;
  }
  return false;
}

void LiteralReader::Comma(std::string* out) {
  if (comma_) *out += ", ";
  comma_ = false;
}

// The first byte of a value, an item or a key, or the bracket that closes the list of them.
bool LiteralReader::TakeStart(char c, std::string* out) {
  if (at_ != At::kValue && c == closers_.back()) return Close(c, out);
  key_ = at_ == At::kKey;
  if (!key_ && (c == '{' || c == '[' || c == '(')) {
    Comma(out);
    return Open(c, out);
  }
  if (!quote_.empty() && c == quote_.front()) {
    held_.assign(1, c);
    at_ = At::kQuoteBegin;
    return true;
  }
  if (quote_.empty() && (c == '"' || c == '\'')) {
    Comma(out);
    *out += '"';
    opener_ = c;
    at_ = At::kString;
    return true;
  }
  if (EndsWord(c)) return false;
  held_.assign(1, c);
  at_ = At::kWord;
  return true;
}

bool LiteralReader::Open(char c, std::string* out) {
  if (closers_.size() >= kDepthMax) return false;
  *out += c == '{' ? '{' : '[';
  closers_ += c == '{' ? '}' : c == '[' ? ']' : ')';
  at_ = c == '{' ? At::kKey : At::kItem;
  return true;
}

bool LiteralReader::Close(char c, std::string* out) {
  *out += c == '}' ? '}' : ']';
  closers_.pop_back();
  comma_ = false;
  at_ = closers_.empty() ? At::kEnd : At::kAfter;
  return true;
}

void LiteralReader::EndString(std::string* out) {
  *out += '"';
  at_ = key_ ? At::kColon : At::kAfter;
}

bool LiteralReader::TakeEscape(char c, std::string* out) {
  at_ = At::kString;
  switch (c) {
    case 'x':
    case 'u':
    case 'U':
      digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      held_.clear();
      at_ = At::kHex;
      return true;
    case 'n':
      *out += "\\n";
      return true;
    case 't':
      *out += "\\t";
      return true;
    case 'r':
      *out += "\\r";
      return true;
    case 'b':
      *out += "\\b";
      return true;
    case 'f':
      *out += "\\f";
      return true;
    case '\n':
      return true;
    case '\\':
    case '\'':
    case '"':
    case '/':
      AppendJsonByte(c, out);
      return true;
    default:  // Python keeps a backslash that escapes nothing
      *out += "\\\\";
      return Take(c, out);
  }
}

bool LiteralReader::TakeHex(char c, std::string* out) {
  if (!IsHex(c)) return false;
  held_ += c;
  if (held_.size() < digits_) return true;
  const auto code = static_cast<uint32_t>(std::stoul(held_, nullptr, 16));
  if (code > 0x10FFFF) return false;
  if (code >= 0x10000) {
    AppendUnit(0xD800 + ((code - 0x10000) >> 10), out);
    AppendUnit(0xDC00 + ((code - 0x10000) & 0x3FF), out);
  } else {
    AppendUnit(code, out);
  }
  at_ = At::kString;
  return true;
}

// A string between markers: the opening one, then text up to the closing one.
bool LiteralReader::TakeMarked(char c, std::string* out) {
  held_ += c;
  if (at_ == At::kQuoteBegin) {
    if (!quote_.starts_with(held_)) return false;
    if (held_.size() < quote_.size()) return true;
    Comma(out);
    *out += '"';
    held_.clear();
    at_ = At::kMarked;
    return true;
  }
  if (held_ == quote_) {
    EndString(out);
    return true;
  }
  const size_t kept = TagBegunAtEnd(held_, quote_);
  for (const char text : std::string_view(held_).substr(0, held_.size() - kept)) {
    AppendJsonByte(text, out);
  }
  held_.erase(0, held_.size() - kept);
  return true;
}

bool LiteralReader::EndWord(std::string* out) {
  Comma(out);
  at_ = key_ ? At::kColon : At::kAfter;
  if (key_) {
    AppendJsonString(held_, out);
    return true;
  }
  if (held_ == "True" || held_ == "true") {
    *out += "true";
  } else if (held_ == "False" || held_ == "false") {
    *out += "false";
  } else if (held_ == "None" || held_ == "null") {
    *out += "null";
  } else {
    const auto number = JsonDocument::Parse(held_);
    if (!number.ok() || !number->root().is_number()) return false;
    *out += held_;
  }
  return true;
}

bool LiteralReader::TakeAfter(char c, std::string* out) {
  if (closers_.empty()) {
    at_ = At::kEnd;
    return false;
  }
  if (IsBlank(c)) return true;
  if (c == closers_.back()) return Close(c, out);
  if (c != ',') return false;
  comma_ = true;
  at_ = closers_.back() == '}' ? At::kKey : At::kItem;
  return true;
}

std::optional<std::string> LiteralToJson(std::string_view text) {
  LiteralReader reader;
  std::string out;
  for (const char c : text) {
    if (reader.Step(c, &out) != LiteralReader::State::kReading) return std::nullopt;
  }
  if (!reader.Finish(&out)) return std::nullopt;
  return out;
}

}  // namespace reprise
