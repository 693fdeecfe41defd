// SPDX-License-Identifier: Apache-2.0
// Expressions and patterns: what they match, checked by walking derivatives; random patterns
// against PCRE2; and that hostile ones end in the budget, not in memory or time.
#include "text/split/regex.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"
#include "grammar/regex/pattern.h"

namespace reprise::grammar {
namespace {

bool Has(RegexPool& pool, RegexId regex, std::string_view text) {
  for (const char byte : text) {
    regex = pool.Derive(regex, static_cast<uint8_t>(byte));
    if (regex == RegexId::kNothing) return false;
  }
  return pool.Nullable(regex);
}

RegexId Make(RegexPool& pool, std::string_view pattern,
             Pattern::Match match = Pattern::Match::kWhole, Spelling spelling = Spelling::kPlain) {
  const auto parsed = Pattern::Parse(pattern);
  EXPECT_TRUE(parsed.ok()) << pattern << ": " << parsed.status().message();
  if (!parsed.ok()) return RegexId::kNothing;
  const auto regex = parsed->Compile(pool, spelling, match);
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().message();
  return regex.ok() ? *regex : RegexId::kNothing;
}

void ExpectMatches(std::string_view pattern, std::vector<std::string_view> yes,
                   std::vector<std::string_view> no,
                   Pattern::Match match = Pattern::Match::kWhole) {
  RegexPool pool;
  const RegexId regex = Make(pool, pattern, match);
  for (const auto text : yes) EXPECT_TRUE(Has(pool, regex, text)) << pattern << " on " << text;
  for (const auto text : no) EXPECT_FALSE(Has(pool, regex, text)) << pattern << " on " << text;
}

TEST(RegexTest, PatternsMatchWhatTheySay) {
  ExpectMatches("a|b*c", {"a", "c", "bbc"}, {"", "b", "ac"});
  ExpectMatches("a{2,3}", {"aa", "aaa"}, {"a", "aaaa"});
  ExpectMatches("(a|){2}", {"", "a", "aa"}, {"aaa"});
  ExpectMatches("[a-cx]+", {"abcx"}, {"", "d"});
  ExpectMatches("[^a]", {"b", "é", "\xF0\x9F\x98\x80"}, {"a", "\xC3", "\x80", ""});
  ExpectMatches("\\d+\\.\\d", {"12.3"}, {"12", "12x3"});
  ExpectMatches("x{,2}", {"x{,2}"}, {"x", "xx"});
  ExpectMatches("\\u00e9|\\x41", {"é", "A"}, {"e"});
  ExpectMatches(".", {"a", "é"}, {"\n", "ab"});
  ExpectMatches("\\p{Lu}\\p{L}*", {"Ab", "Éa"}, {"ab", "1"});
  ExpectMatches("[\\w-]+", {"a-b_1"}, {"a b"});
}

TEST(RegexTest, AnchorsAndLookaheads) {
  const auto somewhere = Pattern::Match::kSomewhere;
  ExpectMatches("b", {"b", "abc"}, {"ac", ""}, somewhere);
  ExpectMatches("^b", {"b", "bc"}, {"ab", ""}, somewhere);
  ExpectMatches("b$", {"b", "ab"}, {"bc"}, somewhere);
  ExpectMatches("^ab?$", {"a", "ab"}, {"xa", "abb", ""}, somewhere);
  ExpectMatches("^a|b$", {"ax", "xb", "a"}, {"xa", "bx"}, somewhere);
  ExpectMatches("(^a|b)c", {"acx", "xbc"}, {"xac"}, somewhere);
  ExpectMatches("^(?!foo).*$", {"bar", "fo", ""}, {"foo", "foobar"}, somewhere);
  ExpectMatches("^(?=.*\\d)(?=.*[a-z]).{3,}$", {"a1x", "1zz"}, {"abc", "123", "a1"}, somewhere);
  ExpectMatches("^$", {""}, {"a"}, somewhere);
  ExpectMatches("a^", {}, {"a", "", "aa"}, somewhere);
  ExpectMatches("^(a(?!b))", {"a", "ac"}, {"ab"}, somewhere);
}

TEST(RegexTest, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"\\bx", "word boundary"}, {"(a)\\1", "backreference"}, {"(?<=a)b", "lookbehind"},
      {"(?i)a", "inline flags"}, {"(^a)*", "repetition"},     {"a++", "possessive"},
      {"a{2,1}", "backwards"},   {"(a", "not closed"},        {"a)", "unbalanced"},
      {"[a", "not closed"},      {"*a", "nothing to repeat"}, {"[b-a]", "backwards"},
      {"\\p{Foo}", "\\p{Foo}"},  {"a{9999999}", "1,000,000"},
  };
  for (const auto& [pattern, why] : cases) {
    const auto parsed = Pattern::Parse(pattern);
    ASSERT_FALSE(parsed.ok()) << pattern;
    EXPECT_NE(parsed.status().message().find(why), std::string::npos)
        << pattern << ": " << parsed.status().message();
  }
}

TEST(RegexTest, CharactersOfJsonStringsHaveOneSpelling) {
  RegexPool pool;
  const RegexId any = Make(pool, "[^]", Pattern::Match::kWhole, Spelling::kJsonString);
  for (const char* text : {"a", "\\n", "\\\"", "\\\\", "\\u0001", "é", "/"}) {
    EXPECT_TRUE(Has(pool, any, text)) << text;
  }
  for (const char* text : {"\"", "\\", "\n", "\\/", "\\u000a", "\\u0041", "\\x"}) {
    EXPECT_FALSE(Has(pool, any, text)) << text;
  }
}

TEST(RegexTest, MultiplesAreCountedDigitByDigit) {
  RegexPool pool;
  const RegexId number = Make(pool, "-?(0|[1-9]\\d*)(\\.\\d+)?");
  const auto multiple = [&](uint64_t modulus, uint32_t scale) {
    return pool.And(number, pool.Multiple(modulus, scale));
  };
  const RegexId sevens = multiple(7, 0);
  for (int i = -200; i < 200; ++i) {
    EXPECT_EQ(Has(pool, sevens, std::to_string(i)), i % 7 == 0) << i;
  }
  const RegexId quarters = multiple(25, 2);
  for (const char* text : {"0", "1", "1.5", "1.25", "-3.750", "10.00"}) {
    EXPECT_TRUE(Has(pool, quarters, text)) << text;
  }
  for (const char* text : {"1.3", "1.255", "0.1", "2.253"}) {
    EXPECT_FALSE(Has(pool, quarters, text)) << text;
  }
  // After 1.3 only 1.30... would do, and it does not.
  EXPECT_EQ(pool.Derive(pool.Derive(pool.Derive(multiple(5, 1), '1'), '.'), '3'),
            RegexId::kNothing);
}

TEST(RegexTest, EmptinessIsFoundBehindIntersections) {
  RegexPool pool;
  EXPECT_TRUE(pool.IsNothing(pool.And(Make(pool, "a*b"), Make(pool, "a*c"))));
  EXPECT_FALSE(pool.IsNothing(pool.And(Make(pool, "a*b"), Make(pool, "a{7}.*"))));
  EXPECT_TRUE(pool.IsNothing(pool.And(Make(pool, "(ab)*a"), pool.Not(Make(pool, ".*a")))));
  EXPECT_TRUE(pool.IsNothing(pool.And(Make(pool, "(..)*"), Make(pool, ".(..)*"))));
}

TEST(RegexTest, AnAlphabetLeavesOutWhatCannotBeWritten) {
  RegexPool pool;
  pool.SetAlphabet(ByteSet::Range('a', 'c'));
  EXPECT_TRUE(pool.IsNothing(Make(pool, "abd")));
  EXPECT_FALSE(pool.IsNothing(Make(pool, "ab[cd]")));
  EXPECT_FALSE(Has(pool, Make(pool, "ab[cd]"), "abd"));
}

std::string RandomPattern(Rng& rng, int depth) {
  switch (depth == 0 ? rng.Below(3) : rng.Below(8)) {
    case 0:
      return "a";
    case 1:
      return "b";
    case 2:
      return "[ab]";
    case 3:
      return RandomPattern(rng, depth - 1) + RandomPattern(rng, depth - 1);
    case 4:
      return "(?:" + RandomPattern(rng, depth - 1) + "|" + RandomPattern(rng, depth - 1) + ")";
    case 5:
      return "(?:" + RandomPattern(rng, depth - 1) + ")*";
    case 6:
      return "(?:" + RandomPattern(rng, depth - 1) + "){1,2}";
    default:
      return "(?:" + RandomPattern(rng, depth - 1) + ")?";
  }
}

TEST(RegexTest, RandomPatternsAgreeWithPcre) {
  Rng rng(7);
  auto scratch = Regex::MakeScratch();
  for (int round = 0; round < 300; ++round) {
    const std::string pattern = RandomPattern(rng, 4);
    RegexPool pool;
    const RegexId regex = Make(pool, pattern);
    const auto oracle = Regex::Compile("\\A(?:" + pattern + ")\\z");
    ASSERT_TRUE(oracle.ok()) << pattern;
    for (int length = 0; length <= 6; ++length) {
      for (int bits = 0; bits < 1 << length; ++bits) {
        std::string text;
        for (int i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'a' : 'b';
        std::vector<Regex::Span> spans;
        ASSERT_TRUE((*oracle)->FindAll(text, scratch.get(), &spans).ok());
        const bool expected = std::ranges::any_of(
            spans, [&](const auto& s) { return s.match && s.begin == 0 && s.end == text.size(); });
        ASSERT_EQ(Has(pool, regex, text), expected) << pattern << " on '" << text << "'";
      }
    }
  }
}

// Texts in which exactly one of some words stands: against a plain search, and with few
// derivatives. A word that was found is looked for no more, and what cannot be fulfilled any more
// is dropped.
TEST(RegexTest, ExactlyOneOfSomeWords) {
  const std::string_view words[] = {"ab", "ba", "aab", "bbb"};
  RegexPool pool;
  const RegexId any = pool.Repeat(pool.Bytes(ByteSet::Of('a') | ByteSet::Of('b')), 0);
  const RegexId end = pool.Literal("\"");
  std::vector<RegexId> found;
  for (const std::string_view word : words) {
    const RegexId parts[] = {any, pool.Literal(word), any, end};
    found.push_back(pool.Concat(parts));
  }
  std::vector<RegexId> alone;
  for (size_t i = 0; i < found.size(); ++i) {
    std::vector<RegexId> all = {pool.Concat(any, end), found[i]};
    for (size_t j = 0; j < found.size(); ++j) {
      if (j != i) all.push_back(pool.Not(found[j]));
    }
    alone.push_back(pool.And(std::move(all)));
  }
  const RegexId regex = pool.Or(std::move(alone));
  const size_t before = pool.node_count();
  for (int length = 0; length <= 9; ++length) {
    for (int bits = 0; bits < 1 << length; ++bits) {
      std::string text;
      for (int i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'a' : 'b';
      const auto count = std::ranges::count_if(
          words, [&](std::string_view word) { return text.find(word) != text.npos; });
      ASSERT_EQ(Has(pool, regex, text + "\""), count == 1) << text;
    }
  }
  EXPECT_LT(pool.node_count() - before, 150u);
  // All is fulfilled: of what was asked nothing is left but that the text goes on and ends.
  RegexId rest = found[0];
  for (const char byte : {'b', 'a', 'b'}) rest = pool.Derive(rest, static_cast<uint8_t>(byte));
  EXPECT_EQ(rest, pool.Concat(any, end));
  // And what is excluded by that is nothing, without a search.
  EXPECT_EQ(pool.And(found[0], pool.Not(rest)), RegexId::kNothing);
}

TEST(RegexTest, HostilePatternsEndInTheBudget) {
  for (const char* pattern : {"((a{1,1000}b?){1,1000}c?){1,1000}", "(.*a.{500}){50}",
                              "(?=.*a.{300})(?=.*b.{299})(?=.*c.{298}).*"}) {
    RegexPool pool({.bytes = size_t{4} << 20, .steps = 200'000});
    RegexId regex = Make(pool, pattern, Pattern::Match::kWhole);
    Rng rng(3);
    for (int i = 0; i < 20'000 && !pool.exhausted(); ++i) {
      const RegexId next = pool.Derive(regex, static_cast<uint8_t>('a' + rng.Below(3)));
      if (next != RegexId::kNothing) regex = next;
    }
    EXPECT_LT(pool.bytes(), size_t{10} << 20) << pattern;
  }
}

}  // namespace
}  // namespace reprise::grammar
