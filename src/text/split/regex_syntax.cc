// SPDX-License-Identifier: Apache-2.0
// From Oniguruma's Ruby syntax to PCRE2's, for the subset that pre-tokenizers use.
#include <string>
#include <string_view>

#include "text/split/regex.h"

namespace reprise {
namespace {

// White_Space written out: PCRE2's own \s has U+180E, too.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWords = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

class Rewriter {
 public:
  explicit Rewriter(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        REPRISE_TRY(Escape());
      } else if (c == '[') {
        atom_ = out_.size();
        REPRISE_TRY(Class());
      } else if (c == '{' && atom_ != kNoAtom && IntervalLength() > 0) {
        Interval();
      } else {
        if (c == '(') groups_.push_back(out_.size());
        if (c == ')' && !groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        } else if (c == '|' || c == '(') {
          atom_ = kNoAtom;
        } else if (c != '*' && c != '+' && c != '?') {
          atom_ = (c & 0xC0) == 0x80 ? atom_ : out_.size();
        }
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr size_t kNoAtom = size_t(-1);

  Status Refuse(const char* what) const {
    return Unimplemented("the pre-tokenizer pattern uses " + std::string(what) + " at character " +
                         std::to_string(at_) +
                         ", which this build cannot run: " + std::string(in_));
  }

  char Next(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void Take(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  // An escape outside a class.
  Status Escape() {
    atom_ = out_.size();
    const std::string_view set = EscapedSet(Next(1));
    if (!set.empty()) {
      out_.append("[").append(set).append("]");
      at_ += 2;
      return OkStatus();
    }
    if (Next(1) == 'W' || Next(1) == 'H') {
      out_.append("[^").append(Next(1) == 'W' ? kWords : kHexDigits).append("]");
      at_ += 2;
      return OkStatus();
    }
    return PlainEscape();
  }

  static std::string_view EscapedSet(char c) {
    switch (c) {
      case 's':
        return kSpaces;
      case 'S':
        return kNotSpaces;
      case 'w':
        return kWords;
      case 'h':
        return kHexDigits;
      default:
        return {};
    }
  }

  // Escapes that are the same, inside a class or outside.
  Status PlainEscape() {
    const char c = Next(1);
    if (c == '\0') return Refuse("a backslash at its end");
    if (c == 'u') {
      const std::string_view digits = in_.substr(at_ + 2, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
        return Refuse("\\u without four hexadecimal digits");
      }
      out_.append("\\x{").append(digits).append("}");
      at_ += 6;
      return OkStatus();
    }
    if ((c == 'p' || c == 'P' || c == 'x') && Next(2) == '{') {
      const size_t close = in_.find('}', at_);
      if (close == in_.npos) return Refuse("a brace that is not closed");
      Take(close + 1 - at_);
      return OkStatus();
    }
    // Letters and digits whose meaning is not known to agree.
    static constexpr std::string_view kSame = "pPxnrtfvaedDbBAzZ0123456789";
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (is_word && kSame.find(c) == kSame.npos) return Refuse("an escape");
    Take(2);
    return OkStatus();
  }

  // The items of a class up to its "]" or "&&", which stay in the input.
  Status ClassItems() {
    bool first = true;
    while (at_ < in_.size()) {
      if ((in_[at_] == ']' && !first) || (in_[at_] == '&' && Next(1) == '&')) return OkStatus();
      first = false;
      if (in_[at_] == '\\') {
        const std::string_view set = EscapedSet(Next(1));
        if (!set.empty()) {
          out_.append(set);
          at_ += 2;
        } else if (Next(1) == 'W' || Next(1) == 'H') {
          return Refuse("a negated set inside a class");
        } else {
          REPRISE_TRY(PlainEscape());
        }
      } else if (in_[at_] == '[') {
        if (Next(1) != ':') return Refuse("a class inside a class");
        const size_t close = in_.find(":]", at_);
        if (close == in_.npos) return Refuse("a class that is not closed");
        Take(close + 2 - at_);
      } else {
        Take(1);
      }
    }
    return Refuse("a class that is not closed");
  }

  // [items], [items&&items] or [items&&[items]]. The intersection becomes a look-ahead.
  Status Class() {
    const size_t begin = out_.size();
    Take(1);
    const bool negated = Next(0) == '^';
    if (negated) Take(1);
    REPRISE_TRY(ClassItems());
    if (in_[at_] == ']') {
      Take(1);
      return OkStatus();
    }
    if (negated) return Refuse("&& in a negated class");
    std::string left = out_.substr(begin) + "]";
    out_.resize(begin);
    at_ += 2;
    const bool nested = Next(0) == '[';
    if (nested) ++at_;
    out_ += "(?:(?=[";
    if (Next(0) == '^') Take(1);
    REPRISE_TRY(ClassItems());
    if (in_[at_] != ']') return Refuse("more than one && in a class");
    ++at_;
    if (nested) {
      if (Next(0) != ']') return Refuse("a class inside a class");
      ++at_;
    }
    out_.append("])").append(left).append(")");
    return OkStatus();
  }

  // The length of {n}, {n,}, {,m} or {n,m} at the input, or 0.
  size_t IntervalLength() const {
    size_t length = 1;
    bool digits = false;
    while (Next(length) == ',' || (Next(length) >= '0' && Next(length) <= '9')) {
      digits |= Next(length) != ',';
      ++length;
    }
    return digits && Next(length) == '}' ? length + 1 : 0;
  }

  // After an interval, Ruby's plus repeats it; PCRE2's makes it possessive. {,m} is a literal to
  // PCRE2.
  void Interval() {
    const size_t length = IntervalLength();
    out_ += in_[at_ + 1] == ',' ? "{0" : "{";
    ++at_;
    Take(length - 1);
    if (Next(0) != '+') return;
    out_.insert(atom_, "(?:");
    out_ += ")+";
    ++at_;
    for (size_t& group : groups_) {
      if (group > atom_) group += 3;
    }
  }

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = kNoAtom;       // where the last thing that can be repeated begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

Result<std::string> RewriteForPcre2(std::string_view pattern) { return Rewriter(pattern).Run(); }

}  // namespace reprise
