// SPDX-License-Identifier: Apache-2.0
#include "grammar/syntax/grammar_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "grammar/regex/char_set.h"
#include "grammar/regex/pattern.h"

namespace reprise::grammar {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 20;
constexpr int kDepthMax = 100;
constexpr uint32_t kRepeatMax = 2000;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

class GrammarReader {
 public:
  GrammarReader(std::string_view text, Grammar* grammar)
      : text_(text),
        grammar_(*grammar),
        pool_(grammar->pool()),
        gbnf_(text.find("::=") != text.npos) {}

  Result<RuleId> Read() {
    SkipSpace();
    while (at_ < text_.size()) {
      REPRISE_TRY(ReadRule());
      SkipSpace();
    }
    const std::string first = gbnf_ ? "root" : "start";
    if (!rules_.contains(first)) return Bad("there is no rule \"" + first + "\"");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) return Bad("the rule \"" + name + "\" is not defined");
    }
    return rules_.at(first).id;
  }

 private:
  struct Rule {
    RuleId id;
    bool defined = false;
  };

  Status Bad(const std::string& what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    return InvalidArgument("not a grammar: " + what + " (line " + std::to_string(line) + ")");
  }

  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // One character, with what its backslash escapes, if that is there.
  void SkipChar() { at_ = std::min(at_ + (text_[at_] == '\\' ? 2 : 1), text_.size()); }

  // Space, lines and comments.
  void SkipSpace() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool comment = gbnf_ ? c == '#' : (c == '#' || text_.substr(at_).starts_with("//"));
      if (comment) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view TakeName() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Whether a new rule begins here: a name with its sign.
  bool AtRule() {
    const size_t begin = at_;
    if (!gbnf_) {
      while (Peek() == '?' || Peek() == '!') ++at_;
    }
    const bool named = !TakeName().empty();
    while (Peek() == ' ' || Peek() == '\t') ++at_;
    const bool rule = named && (gbnf_ ? Take("::=") : Peek() == ':');
    at_ = begin;
    return rule;
  }

  RuleId Find(std::string_view name) {
    const auto known = rules_.find(std::string(name));
    if (known != rules_.end()) return known->second.id;
    const RuleId id = grammar_.AddRule();
    rules_.emplace(name, Rule{id});
    return id;
  }

  Status ReadRule() {
    if (Peek() == '%')
      return Unimplemented("grammars with %ignore, %import or %declare are not supported");
    if (!AtRule()) return Bad("a rule was expected");
    if (!gbnf_) {
      while (Peek() == '?' || Peek() == '!') ++at_;
    }
    const std::string name(TakeName());
    const RuleId id = Find(name);
    SkipSpace();
    if (!Take(gbnf_ ? "::=" : ":")) return Bad("a rule was expected");
    if (std::exchange(rules_.at(name).defined, true))
      return Bad("\"" + name + "\" is defined twice");
    return Alternatives(grammar_.Begin(id), grammar_.End(id), 0);
  }

  Status Alternatives(StateId from, StateId to, int depth) {
    if (depth > kDepthMax) return Bad("nested too deep");
    do {
      REPRISE_TRY(Sequence(from, to, depth));
      SkipSpace();
    } while (Take("|"));
    return OkStatus();
  }

  Status Sequence(StateId from, StateId to, int depth) {
    StateId at = from;
    for (SkipSpace(); at_ < text_.size(); SkipSpace()) {
      const char c = Peek();
      if (c == '|' || c == ')' || (c == ']' && !gbnf_) || c == '%' || AtRule()) break;
      if (text_.substr(at_).starts_with("->"))
        return Unimplemented("aliases (->) in grammars are not supported");
      const StateId next = grammar_.AddState();
      REPRISE_TRY(Repeated(at, next, depth));
      if (grammar_.exhausted()) return ResourceExhausted("the grammar is too large to be compiled");
      at = next;
    }
    grammar_.AddEmpty(at, to);
    return OkStatus();
  }

  // An element and how often it comes. It is read once for each time that is counted.
  Status Repeated(StateId from, StateId to, int depth) {
    const size_t begin = at_;
    const RuleId once = grammar_.AddRule();
    REPRISE_TRY(Element(grammar_.Begin(once), grammar_.End(once), depth));
    uint32_t min = 1;
    uint32_t max = 1;
    if (Take("*")) {
      min = 0;
      max = RegexPool::kUnbounded;
    } else if (Take("+")) {
      max = RegexPool::kUnbounded;
    } else if (Take("?")) {
      min = 0;
    } else if (gbnf_ && Take("{")) {
      REPRISE_TRY(Counts("}", ",", &min, &max));
    } else if (!gbnf_ && Take("~")) {
      REPRISE_TRY(Counts("", "..", &min, &max));
    }
    if (at_ == begin) return Bad("something was expected");
    if (min == 1 && max == 1) {
      grammar_.AddCall(from, once, to);
      return OkStatus();
    }
    StateId at = from;
    for (uint32_t i = 0; i < (max == RegexPool::kUnbounded ? min : max); ++i) {
      if (i >= min) grammar_.AddEmpty(at, to);
      const StateId next = grammar_.AddState();
      grammar_.AddCall(at, once, next);
      at = next;
    }
    if (max == RegexPool::kUnbounded) {
      const StateId loop = grammar_.AddState();
      grammar_.AddEmpty(at, loop);
      grammar_.AddCall(loop, once, loop);
      at = loop;
    }
    grammar_.AddEmpty(at, to);
    return OkStatus();
  }

  std::optional<uint32_t> Number() {
    uint32_t value = 0;
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9' && at_ - begin < 6) {
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }

  Status Counts(std::string_view end, std::string_view separator, uint32_t* min, uint32_t* max) {
    SkipSpace();
    *min = Number().value_or(0);
    *max = *min;
    SkipSpace();
    if (Take(separator)) {
      SkipSpace();
      *max = Number().value_or(RegexPool::kUnbounded);
      SkipSpace();
    }
    if (!Take(end) || *min > *max) return Bad("a count was expected");
    if (*min > kRepeatMax || (*max != RegexPool::kUnbounded && *max > kRepeatMax)) {
      return Unimplemented("a repetition above 2,000 in a grammar is not supported");
    }
    return OkStatus();
  }

  Status Element(StateId from, StateId to, int depth) {
    if (Take("(")) {
      REPRISE_TRY(Alternatives(from, to, depth + 1));
      return Take(")") ? OkStatus() : Bad("a group is not closed");
    }
    if (Peek() == '"') {
      REPRISE_ASSIGN(const std::string literal, Literal());
      grammar_.AddRegex(from, pool_.Literal(literal), to);
      return OkStatus();
    }
    if (gbnf_ && (Peek() == '[' || Peek() == '.')) return CharClass(from, to);
    if (!gbnf_ && Peek() == '/') return Regex(from, to);
    if (!gbnf_ && Take("[")) {
      REPRISE_TRY(Alternatives(from, to, depth + 1));
      grammar_.AddEmpty(from, to);
      return Take("]") ? OkStatus() : Bad("an option is not closed");
    }
    const std::string_view name = TakeName();
    if (name.empty()) return Bad("something was expected");
    if (Peek() == '{' && !gbnf_) return Unimplemented("templates in grammars are not supported");
    grammar_.AddCall(from, Find(name), to);
    return OkStatus();
  }

  // As Pattern reads it, which knows the same escapes.
  Status AddPattern(std::string_view pattern, StateId from, StateId to) {
    REPRISE_ASSIGN(const Pattern parsed, Pattern::Parse(pattern));
    REPRISE_ASSIGN(const RegexId regex,
                   parsed.Compile(pool_, Spelling::kPlain, Pattern::Match::kWhole));
    grammar_.AddRegex(from, regex, to);
    return OkStatus();
  }

  Status CharClass(StateId from, StateId to) {
    if (Take(".")) return AddPattern("[^]", from, to);
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != ']') SkipChar();
    if (at_ >= text_.size()) return Bad("a class is not closed");
    ++at_;
    return AddPattern(text_.substr(begin, at_ - begin), from, to);
  }

  Status Regex(StateId from, StateId to) {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '/' && text_[at_] != '\n') SkipChar();
    if (at_ >= text_.size() || text_[at_] != '/') return Bad("a pattern is not closed");
    const std::string_view pattern = text_.substr(begin, at_ - begin);
    ++at_;
    if (IsNameByte(Peek())) return Unimplemented("patterns with flags are not supported");
    return AddPattern(pattern, from, to);
  }

  Result<std::string> Literal() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"';) {
      if (text_[at_] == '\n') break;
      if (text_[at_] != '\\') {
        out += text_[at_++];
        continue;
      }
      if (++at_ >= text_.size()) break;
      const char c = text_[at_++];
      static constexpr std::string_view kNames = "nrtbf0";
      static constexpr std::string_view kBytes("\n\r\t\b\f\0", 6);
      const size_t named = kNames.find(c);
      const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (digits > 0) {
        uint32_t code = 0;
        for (int i = 0; i < digits; ++i, ++at_) {
          const size_t value =
              std::string_view("0123456789abcdef").find(static_cast<char>(Peek() | 0x20));
          const bool digit = Peek() >= '0' && Peek() <= '9';
          if (!digit && (value == std::string_view::npos || value < 10))
            return Bad("an escape is not complete");
          code = code * 16 +
                 (digit ? static_cast<uint32_t>(Peek() - '0') : static_cast<uint32_t>(value));
        }
        if (code > kCodeMax || (code >= 0xD800 && code < 0xE000))
          return Bad("an escape is not a character");
        AppendUtf8(code, &out);
      } else if (named != kNames.npos) {
        out += kBytes[named];
      } else {
        out += c;
      }
    }
    if (at_ >= text_.size() || text_[at_] != '"') return Bad("a text is not closed");
    ++at_;
    if (!gbnf_ && Peek() == 'i' && !IsNameByte(at_ + 1 < text_.size() ? text_[at_ + 1] : ' ')) {
      return Unimplemented("texts with flags are not supported");
    }
    return out;
  }

  const std::string_view text_;
  Grammar& grammar_;
  RegexPool& pool_;
  const bool gbnf_;
  size_t at_ = 0;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

Result<RuleId> AddGrammarText(std::string_view text, Grammar* grammar) {
  if (text.size() > kTextBytesMax)
    return InvalidArgument("a grammar of more than 1 MiB is refused");
  if (!IsValidUtf8(text)) return InvalidArgument("not a grammar: invalid UTF-8");
  return GrammarReader(text, grammar).Read();
}

}  // namespace reprise::grammar
