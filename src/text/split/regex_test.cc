// SPDX-License-Identifier: Apache-2.0
// Proves: patterns written for Oniguruma mean the same here, or are refused; hostile patterns and
// texts end with an error, not with a hang.
#include "text/split/regex.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

std::string Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return regex.status().message();
  const auto scratch = Regex::MakeScratch();
  std::vector<Regex::Span> spans;
  const Status status = (*regex)->FindAll(text, scratch.get(), &spans);
  if (!status.ok()) return status.message();
  std::string out;
  for (const Regex::Span& span : spans) {
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    out.append(span.match ? "[" : "(").append(part).append(span.match ? "]" : ")");
  }
  return out;
}

TEST(RegexTest, MatchesAndGaps) {
  EXPECT_EQ(Matches("b+", "abbcb"), "(a)[bb](c)[b]");
  EXPECT_EQ(Matches("x", ""), "");
  EXPECT_EQ(Matches("x", "abc"), "(abc)");
  EXPECT_EQ(Matches("(?=b)", "abab"), "(a)[](ba)[](b)");  // empty matches cut
}

TEST(RegexTest, SpaceIsWhiteSpace) {
  EXPECT_EQ(Matches(R"(\s)",
                    "a\xE1\xA0\x8E"
                    "b\xE2\x80\xA8\x1C"),
            "(a\xE1\xA0\x8E"
            "b)[\xE2\x80\xA8](\x1C)");
  EXPECT_EQ(Matches(R"([^\s]+)", "a \xC2\x85x"), "[a]( \xC2\x85)[x]");
  EXPECT_EQ(Matches(R"([\S]+)", "a \xC2\x85x"), "[a]( \xC2\x85)[x]");
  EXPECT_EQ(Matches(R"(\S+)", "a\xE3\x80\x80x"), "[a](\xE3\x80\x80)[x]");
}

TEST(RegexTest, RubyWordsAndHexDigits) {
  EXPECT_EQ(Matches(R"(\w+)", "e\xCC\x81_1-x"), "[e\xCC\x81_1](-)[x]");  // marks are of words
  EXPECT_EQ(Matches(R"(\h+)", "xBEEF \t"), "(x)[BEEF]( \t)");
  EXPECT_EQ(Matches(R"(\W)", "a-"), "(a)[-]");
  EXPECT_EQ(Matches(R"([\h_]+)", "x_9"), "(x)[_9]");
}

TEST(RegexTest, RubyLinesAndEscapes) {
  EXPECT_EQ(Matches("^b", "a\nb"), "(a\n)[b]");
  EXPECT_EQ(Matches(R"(\u0041)", "ABA"), "[A](B)[A]");
  EXPECT_EQ(Matches(R"(\x{4e2d}\x42)", "中B"), "[中B]");
}

TEST(RegexTest, PlusAfterAnInterval) {
  // Ruby: repeat the interval. PCRE2 alone would be possessive.
  EXPECT_EQ(Matches(R"(\p{N}{1,3}+)", "12345678"), "[12345678]");
  EXPECT_EQ(Matches("(?:ab){2}+", "ababab"), "[abab](ab)");
  EXPECT_EQ(Matches("a{2,}b{,2}", "aabbb"), "[aabb](b)");
  EXPECT_EQ(Matches("x{y}", "x{y}"), "[x{y}]");
}

TEST(RegexTest, SetIntersection) {
  EXPECT_EQ(Matches(R"([\p{Lo}a&&[^\p{Han}]]+)", "aか中a"), "[aか](中)[a]");
  EXPECT_EQ(Matches(R"([a-z&&aeiou]+)", "hello"), "(h)[e](ll)[o]");
  EXPECT_NE(Matches(R"([^a-z&&aeiou])", "x").find("&&"), std::string::npos);
  EXPECT_NE(Matches(R"([a[bc]])", "x").find("class inside a class"), std::string::npos);
}

TEST(RegexTest, NewCharactersHaveTheirClass) {
  // U+31350 is a letter since Unicode 15, U+1FAE9 a symbol since 16, U+1CCF0 a number since 16.
  EXPECT_EQ(Matches(R"(\p{L}+)", "a\xF0\xB1\x8D\x90!"), "[a\xF0\xB1\x8D\x90](!)");
  EXPECT_EQ(Matches(R"(\p{S}+)", "a\xF0\x9F\xAB\xA9"), "(a)[\xF0\x9F\xAB\xA9]");
  EXPECT_EQ(Matches(R"(\p{N}+)", "a\xF0\x9C\xB3\xB0"), "(a)[\xF0\x9C\xB3\xB0]");
}

TEST(RegexTest, InvalidBytesAreControlCharacters) {
  EXPECT_EQ(Matches(R"([^\s\p{L}]+)", "a\xFF\xC3z"), "(a)[\xFF\xC3](z)");
  EXPECT_EQ(Matches(R"(\p{L}+)",
                    "\xE4\xBD"
                    "a"),
            "(\xE4\xBD)[a]");
}

TEST(RegexTest, RefusesWhatItCannotRun) {
  for (const std::string_view pattern :
       {"(", "[a", "a\\", "\\q", "(?<n>a", "\\u12", "[\\W]", "\\p{Unheard}", "a{2}{", "\\C", "*"}) {
    const auto regex = Regex::Compile(pattern);
    if (regex.ok()) continue;  // "a{2}{" is a literal brace
    EXPECT_EQ(regex.status().code(), StatusCode::kUnimplemented) << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(100000, 'a')).ok());
}

TEST(RegexTest, RunawayPatternsEnd) {
  const std::string text = std::string(5000, 'a') + "!";
  EXPECT_NE(Matches("(a+)+$", text).find("cannot split this text"), std::string::npos);
}

TEST(RegexTest, LongRunsAreFine) {
  const auto regex =
      Regex::Compile(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}]*[\p{Ll}\p{Lo}\p{M}]+|\s+(?!\S)|\s+)");
  ASSERT_TRUE(regex.ok());
  const auto scratch = Regex::MakeScratch();
  for (const char* unit : {"a", "A", " ", "中"}) {
    std::string text;
    while (text.size() < 2'000'000) text += unit;
    std::vector<Regex::Span> spans;
    EXPECT_TRUE((*regex)->FindAll(text, scratch.get(), &spans).ok()) << unit;
  }
}

}  // namespace
}  // namespace reprise
