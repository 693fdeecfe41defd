// SPDX-License-Identifier: Apache-2.0
#include "text/template/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "text/template/python/repr.h"
#include "text/template/python/strings.h"
#include "text/template/python/unicode.h"

namespace reprise::jinja {
namespace {

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigitChar(c); }

// "\r\n" and "\r" become "\n"; one newline at the end is dropped.
std::string NormalizedNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(source) {}

  Result<std::vector<Token>> Run() {
    while (at_ < text_.size()) REPRISE_TRY(LexText());
    Push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status Fail(std::string message) const {
    return InvalidArgument("line " + std::to_string(line_) + ": " + std::move(message));
  }

  bool LooksAt(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  // Moves on, counting lines.
  void Advance(size_t bytes) {
    const std::string_view passed = text_.substr(at_, bytes);
    line_ += static_cast<uint32_t>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
    at_ += passed.size();
  }

  void AdvanceOverSpace() {
    const std::string_view rest = text_.substr(at_);
    Advance(rest.size() - Strip(rest, Side::kLeft).size());
  }

  void Push(TokenKind kind, std::string_view text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text;
    tokens_.push_back(std::move(token));
  }

  // Text up to a tag, as much of it as the tag's sign and lstrip_blocks leave over.
  std::string_view TextBefore(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return Strip(text, Side::kRight);
    if (sign == '+' || variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    const std::string_view blanks = text.substr(line);
    return Strip(blanks, Side::kBoth).empty() ? text.substr(0, line) : text;
  }

  void PushText(std::string_view text) {
    if (!text.empty()) Push(TokenKind::kText, text);
  }

  char SignAt(size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  Status LexText() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= text_.size()) {
        PushText(text_.substr(at_));
        at_ = text_.size();
        return OkStatus();
      }
      const char next = text_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char type = text_[tag + 1];
    const char sign = SignAt(tag + 2);
    PushText(TextBefore(text_.substr(at_, tag - at_), sign, type == '{'));
    Advance(tag - at_);
    if (type == '%' && IsRawBegin()) return LexRaw();
    if (type == '%') Push(TokenKind::kBlockBegin, "{%");
    if (type == '{') Push(TokenKind::kVariableBegin, "{{");
    Advance(sign == '\0' ? 2 : 3);
    if (type == '#') return LexComment();
    return LexTag(type == '%');
  }

  // Passes a closing "%}" or "#}" with its sign, and what the sign takes with it.
  bool AdvanceOverEnd(std::string_view end) {
    if (at_ < text_.size() && text_[at_] == '-' && text_.substr(at_ + 1, 2) == end) {
      Advance(3);
      AdvanceOverSpace();
      return true;
    }
    if (at_ < text_.size() && text_[at_] == '+' && text_.substr(at_ + 1, 2) == end) {
      Advance(3);
      return true;
    }
    if (!LooksAt(end)) return false;
    Advance(2);
    if (LooksAt("\n")) Advance(1);
    return true;
  }

  Status LexComment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return Fail("Missing end of comment tag");
    const bool sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+');
    Advance(end - (sign ? 1 : 0) - at_);
    AdvanceOverEnd("#}");
    return OkStatus();
  }

  // The offset after "{%", a sign, blanks, `word` and blanks at `at`; npos if that is not there.
  size_t AfterBlockWord(size_t at, std::string_view word) const {
    at += 2;
    if (SignAt(at) != '\0') ++at;
    std::string_view rest = Strip(text_.substr(std::min(at, text_.size())), Side::kLeft);
    if (!rest.starts_with(word)) return std::string_view::npos;
    rest = Strip(rest.substr(word.size()), Side::kLeft);
    return text_.size() - rest.size();
  }

  bool IsRawBegin() const {
    const size_t after = AfterBlockWord(at_, "raw");
    if (after == std::string_view::npos) return false;
    return text_.substr(after, 2) == "%}" || text_.substr(after, 3) == "-%}";
  }

  Status LexRaw() {
    Advance(AfterBlockWord(at_, "raw") - at_);
    const bool strip = text_[at_] == '-';
    Advance(strip ? 3 : 2);
    if (strip) AdvanceOverSpace();
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 1)) {
      const size_t after = AfterBlockWord(tag, "endraw");
      if (after == std::string_view::npos) continue;
      const std::string_view end = text_.substr(after, 3);
      if (!end.starts_with("%}") && end != "-%}" && end != "+%}") continue;
      PushText(TextBefore(text_.substr(at_, tag - at_), SignAt(tag + 2), false));
      Advance(after - at_);
      AdvanceOverEnd("%}");
      return OkStatus();
    }
    return Fail("Missing end of raw directive");
  }

  // Everything inside {% %} or {{ }}.
  Status LexTag(bool block) {
    while (at_ < text_.size()) {
      if (open_.empty()) {
        const uint32_t line = line_;
        if (block && AdvanceOverEnd("%}")) {
          Push(TokenKind::kBlockEnd, "%}");
          tokens_.back().line = line;
          return OkStatus();
        }
        if (!block && (LooksAt("}}") || LooksAt("-}}"))) {
          const bool strip = text_[at_] == '-';
          Push(TokenKind::kVariableEnd, "}}");
          Advance(strip ? 3 : 2);
          if (strip) AdvanceOverSpace();
          return OkStatus();
        }
      }
      REPRISE_TRY(LexInTag());
    }
    return Fail(block ? "unexpected end of template, expected '%}'"
                      : "unexpected end of template, expected '}}'");
  }

  Status LexInTag() {
    const char c = text_[at_];
    const size_t length = Utf8SequenceLength(text_.substr(at_));
    if (length > 0 && IsSpace(DecodeUtf8(text_.substr(at_), length))) {
      Advance(length);
      return OkStatus();
    }
    if (IsDigitChar(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < text_.size() && IsNameChar(text_[end])) ++end;
      Push(TokenKind::kName, text_.substr(at_, end - at_));
      Advance(end - at_);
      return OkStatus();
    }
    if (c == '"' || c == '\'') return LexString(c);
    return LexOperator();
  }

  // Digits with single underscores between them; returns the end.
  size_t DigitsEnd(size_t at, int base) const {
    const auto digit = [&](size_t i) {
      if (i >= text_.size()) return false;
      const char c = static_cast<char>(text_[i] | 0x20);
      const int value = IsDigitChar(text_[i])  ? text_[i] - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                               : 99;
      return value < base;
    };
    while (digit(at) || (at < text_.size() && text_[at] == '_' && digit(at + 1))) ++at;
    return at;
  }

  Status LexNumber() {
    int base = 10;
    if (text_[at_] == '0' && at_ + 1 < text_.size()) {
      const char prefix = static_cast<char>(text_[at_ + 1] | 0x20);
      base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      if (base != 10 && DigitsEnd(at_ + 2, base) == at_ + 2) base = 10;
    }
    const size_t digits = base == 10 ? at_ : at_ + 2;
    size_t end = DigitsEnd(digits, base);
    bool floating = false;
    const bool after_dot =
        !tokens_.empty() && tokens_.back().IsOperator(".") && at_ > 0 && text_[at_ - 1] == '.';
    if (base == 10 && !after_dot) {
      if (end + 1 < text_.size() && text_[end] == '.' && IsDigitChar(text_[end + 1])) {
        floating = true;
        end = DigitsEnd(end + 1, 10);
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-'))
          ++exponent;
        if (exponent < text_.size() && IsDigitChar(text_[exponent])) {
          floating = true;
          end = DigitsEnd(exponent, 10);
        }
      }
    }
    std::string written(text_.substr(digits, end - digits));
    written.erase(std::remove(written.begin(), written.end(), '_'), written.end());
    Push(floating ? TokenKind::kFloat : TokenKind::kInteger, text_.substr(at_, end - at_));
    const char* first = written.data();
    const char* last = first + written.size();
    const bool read =
        floating ? std::from_chars(first, last, tokens_.back().number).ec == std::errc()
                 : std::from_chars(first, last, tokens_.back().integer, base).ec == std::errc();
    if (!read) return Fail("the number " + tokens_.back().text + " is out of range");
    Advance(end - at_);
    return OkStatus();
  }

  Status LexString(char quote) {
    const size_t begin = at_ + 1;
    size_t end = begin;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return Fail("the string that begins here does not end");
    const uint32_t line = line_;
    std::string value;
    REPRISE_TRY(Unescape(text_.substr(begin, end - begin), &value));
    Push(TokenKind::kString, value);
    tokens_.back().line = line;
    Advance(end + 1 - at_);
    return OkStatus();
  }

  // The escapes of a Python string literal. An unknown one stays as it is.
  Status Unescape(std::string_view text, std::string* out) const {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        *out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view kNames = "abfnrtv\\'\"";
      constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
        *out += kValues[simple];
      } else if (c == '\n') {
        // A line that continues.
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        for (; digits < 3 && i + digits < text.size(); ++digits) {
          const char d = text[i + digits];
          if (d < '0' || d > '7') break;
          code = code * 8 + static_cast<uint32_t>(d - '0');
        }
        i += digits - 1;
        AppendUtf8(code, out);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        if (!ReadHex(text.substr(i + 1), digits, &code)) {
          return Fail("truncated or impossible \\" + std::string(1, c) + " escape in a string");
        }
        AppendUtf8(code, out);
        i += digits;
      } else if (c == 'N') {
        return Fail("\\N escapes in strings are not supported");
      } else {
        *out += '\\';
        *out += c;
      }
    }
    return OkStatus();
  }

  static bool ReadHex(std::string_view text, size_t digits, uint32_t* code) {
    if (text.size() < digits) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + digits, *code, 16);
    if (error != std::errc() || end != text.data() + digits) return false;
    return *code <= 0x10FFFF && (*code < 0xD800 || *code >= 0xE000);
  }

  Status LexOperator() {
    constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                               "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                               ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!LooksAt(op)) continue;
      REPRISE_TRY(Balance(op[0]));
      Push(TokenKind::kOperator, op);
      Advance(op.size());
      return OkStatus();
    }
    const size_t length = std::max<size_t>(1, Utf8SequenceLength(text_.substr(at_)));
    return Fail("unexpected char " + Repr(text_.substr(at_, length)));
  }

  Status Balance(char c) {
    if (c == '(') open_ += ')';
    if (c == '[') open_ += ']';
    if (c == '{') open_ += '}';
    if (c != ')' && c != ']' && c != '}') return OkStatus();
    if (open_.empty()) return Fail(std::string("unexpected '") + c + "'");
    const char expected = open_.back();
    open_.pop_back();
    if (expected == c) return OkStatus();
    return Fail(std::string("unexpected '") + c + "', expected '" + expected + "'");
  }

  const std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // the last thing read ended with a newline
  std::string open_;           // the brackets that are still to close
  std::vector<Token> tokens_;
};

}  // namespace

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
      return "template text";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

Result<std::vector<Token>> Tokenize(std::string_view source) {
  const std::string text = NormalizedNewlines(source);
  return Lexer(text).Run();
}

}  // namespace reprise::jinja
