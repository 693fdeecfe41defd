// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex/pattern.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>

#include "base/utf8.h"

namespace reprise::grammar {

class PatternParser {
 public:
  PatternParser(std::string_view text, Pattern* pattern) : text_(text), pattern_(*pattern) {}

  Status Parse() {
    REPRISE_ASSIGN(pattern_.root_, Alternatives(0));
    if (at_ < text_.size()) return Bad("unbalanced )");
    return OkStatus();
  }

 private:
  using Kind = Pattern::Kind;
  using Node = Pattern::Node;

  Status Bad(std::string_view what) const {
    return InvalidArgument("not a regular expression: " + std::string(what) + " at byte " +
                           std::to_string(at_));
  }
  static Status Unsupported(std::string_view what) {
    return Unimplemented("a regular expression with " + std::string(what) +
                         " is not supported here");
  }

  bool Take(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  uint32_t Add(Node node) {
    node.asserts |=
        node.kind == Kind::kStart || node.kind == Kind::kEnd || node.kind == Kind::kLook;
    for (const uint32_t part : node.parts) node.asserts |= pattern_.nodes_[part].asserts;
    pattern_.nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(pattern_.nodes_.size() - 1);
  }
  uint32_t AddSet(CharSet set) {
    pattern_.sets_.push_back(std::move(set));
    return Add({.kind = Kind::kSet, .set = static_cast<uint32_t>(pattern_.sets_.size() - 1)});
  }

  Result<uint32_t> Alternatives(int depth) {
    if (depth > Pattern::kDepthMax) return Bad("groups are nested too deep");
    std::vector<uint32_t> parts;
    do {
      REPRISE_ASSIGN(const uint32_t part, Sequence(depth));
      parts.push_back(part);
    } while (Take("|"));
    return parts.size() == 1 ? parts[0] : Add({.kind = Kind::kOr, .parts = std::move(parts)});
  }

  Result<uint32_t> Sequence(int depth) {
    std::vector<uint32_t> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      REPRISE_ASSIGN(uint32_t part, Atom(depth));
      REPRISE_ASSIGN(part, Quantified(part));
      parts.push_back(part);
    }
    if (parts.empty()) return Add({});
    return parts.size() == 1 ? parts[0] : Add({.kind = Kind::kConcat, .parts = std::move(parts)});
  }

  // {n}, {n,}, {n,m}; nothing if the brace is a plain character.
  std::optional<std::pair<uint32_t, uint32_t>> Counts() {
    const size_t begin = at_;
    const auto fail = [&]() -> std::optional<std::pair<uint32_t, uint32_t>> {
      at_ = begin;
      return std::nullopt;
    };
    ++at_;
    const auto number = [&]() -> std::optional<uint32_t> {
      const size_t from = at_;
      uint64_t value = 0;
      while (Peek() >= '0' && Peek() <= '9' && at_ - from < 10) {
        value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
      }
      if (at_ == from) return std::nullopt;
      return static_cast<uint32_t>(std::min<uint64_t>(value, RegexPool::kUnbounded - 1));
    };
    const auto min = number();
    if (!min) return fail();
    if (Take("}")) return std::pair{*min, *min};
    if (!Take(",")) return fail();
    if (Take("}")) return std::pair{*min, RegexPool::kUnbounded};
    const auto max = number();
    if (!max || !Take("}")) return fail();
    return std::pair{*min, *max};
  }

  Result<uint32_t> Quantified(uint32_t atom) {
    while (true) {
      uint32_t min = 0;
      uint32_t max = RegexPool::kUnbounded;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Peek() == '{') {
        const auto counts = Counts();
        if (!counts) return atom;
        std::tie(min, max) = *counts;
        if (min > max) return Bad("a repetition counts backwards");
        if (min > Pattern::kRepeatMax ||
            (max != RegexPool::kUnbounded && max > Pattern::kRepeatMax)) {
          return Unsupported("a repetition above 1,000,000");
        }
      } else {
        return atom;
      }
      Take("?");  // lazy: the same texts
      if (Peek() == '+') return Unsupported("a possessive quantifier");
      if (pattern_.nodes_[atom].asserts && !(min <= 1 && max == 1)) {
        return Unsupported("an anchor or a lookahead in a repetition");
      }
      atom = Add({.kind = Kind::kRepeat, .min = min, .max = max, .parts = {atom}});
    }
  }

  Result<uint32_t> Group(int depth) {
    Node look{.kind = Kind::kLook};
    bool looks = false;
    if (Take("?")) {
      if (Take("=")) {
        looks = true;
      } else if (Take("!")) {
        looks = look.negative = true;
      } else if (Take("<=") || Take("<!")) {
        return Unsupported("a lookbehind");
      } else if (Take("P<") || Take("<")) {
        const size_t end = text_.find('>', at_);
        if (end == text_.npos) return Bad("a group's name does not end");
        at_ = end + 1;
      } else if (!Take(":")) {
        return Unsupported("inline flags");
      }
    }
    REPRISE_ASSIGN(const uint32_t inner, Alternatives(depth + 1));
    if (!Take(")")) return Bad("a group is not closed");
    if (!looks) return inner;
    look.parts = {inner};
    return Add(std::move(look));
  }

  Result<uint32_t> Atom(int depth) {
    const char c = Peek();
    if (Take("(")) return Group(depth);
    if (Take("[")) {
      REPRISE_ASSIGN(CharSet set, Class());
      return AddSet(std::move(set));
    }
    if (Take(".")) {
      const CharSet ends = CharSet::Of('\n', '\n').Union(CharSet::Of('\r', '\r'));
      return AddSet(ends.Union(CharSet::Of(0x2028, 0x2029)).Complement());
    }
    if (Take("^") || Take("\\A")) return Add({.kind = Kind::kStart});
    if (Take("$") || Take("\\z") || Take("\\Z")) return Add({.kind = Kind::kEnd});
    if (c == '*' || c == '+' || c == '?') return Bad("nothing to repeat");
    if (c == '\\') {
      REPRISE_ASSIGN(CharSet set, Escape(/*in_class=*/false));
      return AddSet(std::move(set));
    }
    REPRISE_ASSIGN(const uint32_t code, Character());
    return AddSet(CharSet::Of(code, code));
  }

  Result<uint32_t> Character() {
    const size_t length = Utf8SequenceLength(text_.substr(at_));
    if (length == 0) return Bad("invalid UTF-8");
    const uint32_t code = DecodeUtf8(text_.substr(at_), length);
    at_ += length;
    return code;
  }

  Result<uint32_t> Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Peek();
      const char lower = static_cast<char>(c | 0x20);
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        digit = static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return Bad("a hexadecimal digit is missing");
      }
      value = value * 16 + digit;
      ++at_;
    }
    return value;
  }

  Result<uint32_t> UnicodeEscape() {
    if (Take("{")) {
      uint32_t value = 0;
      size_t digits = 0;
      while (!Take("}")) {
        REPRISE_ASSIGN(const uint32_t digit, Hex(1));
        value = value * 16 + digit;
        if (++digits > 6) return Bad("a character is out of range");
      }
      if (value > kCodeMax) return Bad("a character is out of range");
      return value;
    }
    REPRISE_ASSIGN(uint32_t value, Hex(4));
    if (value >= 0xD800 && value < 0xDC00 && Take("\\u")) {
      REPRISE_ASSIGN(const uint32_t low, Hex(4));
      if (low < 0xDC00 || low > 0xDFFF) return Bad("half of a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return value;
  }

  Result<CharSet> Escape(bool in_class) {
    ++at_;  // the backslash
    if (AtEnd()) return Bad("a backslash at the end");
    const char c = text_[at_++];
    const auto one = [](uint32_t code) { return CharSet::Of(code, code); };
    switch (c) {
      case 'd':
        return CharSet::Digits();
      case 'D':
        return CharSet::Digits().Complement();
      case 'w':
        return CharSet::Word();
      case 'W':
        return CharSet::Word().Complement();
      case 's':
        return CharSet::Space();
      case 'S':
        return CharSet::Space().Complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one(7);
      case '0':
        return one(0);
      case 'b':
        if (in_class) return one(8);
        return Unsupported("the word boundary \\b");
      case 'B':
        return Unsupported("the word boundary \\B");
      case 'p':
      case 'P': {
        std::string_view name = text_.substr(at_, 1);
        if (Take("{")) {
          const size_t end = text_.find('}', at_);
          if (end == text_.npos) return Bad("a class's name does not end");
          name = text_.substr(at_, end - at_);
          at_ = end + 1;
        } else {
          at_ += name.size();
        }
        for (const std::string_view key : {"General_Category=", "gc="}) {
          if (name.starts_with(key)) name.remove_prefix(key.size());
        }
        REPRISE_ASSIGN(CharSet set, CharSet::Category(name));
        return c == 'p' ? set : set.Complement();
      }
      case 'x': {
        REPRISE_ASSIGN(const uint32_t code, Hex(2));
        return one(code);
      }
      case 'u': {
        REPRISE_ASSIGN(const uint32_t code, UnicodeEscape());
        return one(code);
      }
      case 'c':
        if (AtEnd()) return Bad("a control character without its letter");
        return one(static_cast<uint32_t>(text_[at_++] & 31));
      case 'k':
        return Unsupported("a backreference");
      default:
        break;
    }
    if (c >= '1' && c <= '9') return Unsupported("a backreference");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return Unsupported("the escape \\" + std::string(1, c));
    }
    --at_;
    REPRISE_ASSIGN(const uint32_t code, Character());
    return one(code);
  }

  // After '['.
  Result<CharSet> Class() {
    const bool negative = Take("^");
    CharSet set;
    for (bool first = true;; first = false) {
      if (AtEnd()) return Bad("a class is not closed");
      if (Peek() == ']' && !first) break;
      // ECMAScript: [] has nothing, [^] everything; elsewhere a first ] is a character.
      if (Peek() == ']' && text_.find(']', at_ + 1) == text_.npos) break;
      if (text_.substr(at_).starts_with("[:")) return Unsupported("a POSIX class");
      REPRISE_ASSIGN(const CharSet low, ClassAtom());
      const bool range = Peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!range || low.ranges().size() != 1 || low.ranges()[0].first != low.ranges()[0].last) {
        set = set.Union(low);
        continue;
      }
      ++at_;
      REPRISE_ASSIGN(const CharSet high, ClassAtom());
      if (high.ranges().size() != 1 || high.ranges()[0].first != high.ranges()[0].last) {
        set = set.Union(low).Union(high).Union(CharSet::Of('-', '-'));
        continue;
      }
      if (high.ranges()[0].first < low.ranges()[0].first) return Bad("a range runs backwards");
      set = set.Union(CharSet::Of(low.ranges()[0].first, high.ranges()[0].first));
    }
    ++at_;
    return negative ? set.Complement() : set;
  }

  Result<CharSet> ClassAtom() {
    if (Peek() == '\\') return Escape(/*in_class=*/true);
    REPRISE_ASSIGN(const uint32_t code, Character());
    return CharSet::Of(code, code);
  }

  const std::string_view text_;
  Pattern& pattern_;
  size_t at_ = 0;
};

// Writes the tree down as an expression. Assertions look at what comes after them, so a node that
// has some is compiled together with its continuation: $ is "the rest is empty", a lookahead an
// intersection with the rest.
class PatternCompiler {
 public:
  PatternCompiler(const Pattern& pattern, RegexPool& pool, Spelling spelling)
      : pattern_(pattern),
        pool_(pool),
        spelling_(spelling),
        any_(pool.Repeat(SpellSet(pool, CharSet::All(), spelling), 0)) {}

  Result<RegexId> Compile(Pattern::Match match) {
    if (match == Pattern::Match::kWhole) {
      return Before(pattern_.root_, Begun::kNo, RegexId::kEmpty);
    }
    REPRISE_ASSIGN(const RegexId first, Before(pattern_.root_, Begun::kNo, any_));
    if (!pattern_.nodes_[pattern_.root_].asserts) return pool_.Concat(any_, first);
    REPRISE_ASSIGN(const RegexId later, Before(pattern_.root_, Begun::kYes, any_));
    const RegexId some = SpellSet(pool_, CharSet::All(), spelling_);
    return pool_.Or(first, pool_.Concat(some, pool_.Concat(any_, later)));
  }

 private:
  using Kind = Pattern::Kind;
  using Node = Pattern::Node;
  // Whether there is text before the place in question.
  enum class Begun : uint8_t { kNo, kYes, kUnknown };

  // REQUIRES: nothing in it asserts.
  RegexId Plain(uint32_t index) {
    const Node& node = pattern_.nodes_[index];
    switch (node.kind) {
      case Kind::kSet:
        return SpellSet(pool_, pattern_.sets_[node.set], spelling_);
      case Kind::kRepeat:
        return pool_.Repeat(Plain(node.parts[0]), node.min, node.max);
      case Kind::kConcat:
      case Kind::kOr: {
        std::vector<RegexId> parts;
        for (const uint32_t part : node.parts) parts.push_back(Plain(part));
        return node.kind == Kind::kOr ? pool_.Or(std::move(parts)) : pool_.Concat(parts);
      }
      default:
        return RegexId::kEmpty;
    }
  }

  Result<RegexId> Before(uint32_t index, Begun begun, RegexId rest) {
    const Node& node = pattern_.nodes_[index];
    const bool joins = node.kind == Kind::kOr || node.kind == Kind::kConcat;
    if (!node.asserts && rest == any_ && node.kind == Kind::kRepeat) {
      // Before any text, what may come more often need not.
      return pool_.Concat(pool_.Repeat(Plain(node.parts[0]), node.min, node.min), rest);
    }
    if (!node.asserts && (rest != any_ || !joins)) return pool_.Concat(Plain(index), rest);
    switch (node.kind) {
      case Kind::kStart:
        if (begun == Begun::kUnknown) {
          return Unimplemented(
              "a regular expression with ^ after something optional is not supported here");
        }
        return begun == Begun::kNo ? rest : RegexId::kNothing;
      case Kind::kEnd:
        return pool_.Nullable(rest) ? RegexId::kEmpty : RegexId::kNothing;
      case Kind::kLook: {
        REPRISE_ASSIGN(const RegexId ahead, Before(node.parts[0], begun, any_));
        return pool_.And(node.negative ? pool_.Not(ahead) : ahead, rest);
      }
      case Kind::kOr: {
        std::vector<RegexId> parts;
        for (const uint32_t part : node.parts) {
          REPRISE_ASSIGN(const RegexId one, Before(part, begun, rest));
          parts.push_back(one);
        }
        return pool_.Or(std::move(parts));
      }
      case Kind::kConcat:
        return Sequence(node, begun, rest);
      case Kind::kRepeat: {
        REPRISE_ASSIGN(const RegexId once, Before(node.parts[0], begun, rest));
        return node.min == 0 ? pool_.Or(once, rest) : once;
      }
      default:
        return rest;
    }
  }

  Result<RegexId> Sequence(const Node& node, Begun begun, RegexId rest) {
    std::vector<Begun> states;
    for (const uint32_t part : node.parts) {
      states.push_back(begun);
      const Node& child = pattern_.nodes_[part];
      if (begun == Begun::kYes) continue;
      if (child.asserts) {
        if (child.kind != Kind::kStart && child.kind != Kind::kEnd && child.kind != Kind::kLook) {
          begun = Begun::kUnknown;
        }
        continue;
      }
      const RegexId text = Plain(part);
      if (!pool_.Nullable(text)) {
        begun = Begun::kYes;
      } else if (text != RegexId::kEmpty) {
        begun = Begun::kUnknown;
      }
    }
    for (size_t i = node.parts.size(); i-- > 0;) {
      REPRISE_ASSIGN(rest, Before(node.parts[i], states[i], rest));
    }
    return rest;
  }

  const Pattern& pattern_;
  RegexPool& pool_;
  const Spelling spelling_;
  const RegexId any_;
};

Result<Pattern> Pattern::Parse(std::string_view text) {
  if (text.size() > kBytesMax) {
    return InvalidArgument("a regular expression of more than 65,536 bytes is refused");
  }
  Pattern pattern;
  PatternParser parser(text, &pattern);
  REPRISE_TRY(parser.Parse());
  return pattern;
}

Result<RegexId> Pattern::Compile(RegexPool& pool, Spelling spelling, Match match) const {
  return PatternCompiler(*this, pool, spelling).Compile(match);
}

}  // namespace reprise::grammar
