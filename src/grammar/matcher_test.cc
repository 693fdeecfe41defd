// SPDX-License-Identifier: Apache-2.0
// Masks are right to the bit: every token of a vocabulary is allowed exactly if its bytes may
// follow.
#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "grammar/regex/pattern.h"

namespace reprise::grammar {
namespace {

// All single bytes, an end token (256), and pieces that cross every border.
std::vector<std::string> SmallVocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.push_back("");
  for (const char* text : {"ab", "abc", "\":", "\"}", "12", "123", "12,", "true", "a\"", "é", "xé",
                           "quite a long piece of text", "ab", "\\n", "\n  ", "\xC3"}) {
    tokens.push_back(text);
  }
  return tokens;
}

std::shared_ptr<const TokenTrie> MakeTrie(const std::vector<std::string>& tokens) {
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const int32_t ends[] = {256};
  return std::make_shared<const TokenTrie>(views, ends);
}

std::shared_ptr<Language> FromPattern(std::string_view pattern,
                                      const std::vector<std::string>& tokens,
                                      const Language::Limits& limits = {}) {
  Grammar grammar;
  const auto parsed = Pattern::Parse(pattern);
  CHECK(parsed.ok());
  const auto regex = parsed->Compile(grammar.pool(), Spelling::kPlain, Pattern::Match::kWhole);
  CHECK(regex.ok());
  const RuleId rule = grammar.AddRule();
  grammar.AddRegex(grammar.Begin(rule), *regex, grammar.End(rule));
  CHECK(grammar.Finish(rule).ok());
  return std::make_shared<Language>(std::move(grammar), MakeTrie(tokens), limits);
}

// The slow truth: try each token.
void ExpectExactMask(Matcher& matcher, const std::vector<std::string>& tokens) {
  std::vector<uint64_t> mask((tokens.size() + 63) / 64);
  ASSERT_TRUE(matcher.Fill(mask).ok());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool allowed = mask[i / 64] >> (i % 64) & 1;
    const Status status = matcher.Accept(static_cast<int32_t>(i));
    EXPECT_EQ(allowed, status.ok()) << "token '" << tokens[i] << "' after " << matcher.text();
    if (status.ok()) matcher.Rollback(1);
  }
}

TEST(MatcherTest, MasksAreExactAlongRandomTexts) {
  const std::vector<std::string> tokens = SmallVocabulary();
  for (const char* pattern :
       {"[^]{0,3}", "\"[^\"\\\\]*\"", "(ab|abc)*x?", "\"[^\"\\\\]{2,9}\":(true|12,?)*", "[a-é]+",
        "\"([^\"\\\\\\x00-\\x1f]|\\\\n){0,40}\""}) {
    const auto language = FromPattern(pattern, tokens);
    Rng rng(5);
    for (int round = 0; round < 20; ++round) {
      Matcher matcher(language);
      for (int step = 0; step < 12 && !matcher.ended(); ++step) {
        ExpectExactMask(matcher, tokens);
        std::vector<uint64_t> mask((tokens.size() + 63) / 64);
        ASSERT_TRUE(matcher.Fill(mask).ok());
        std::vector<int32_t> allowed;
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (mask[i / 64] >> (i % 64) & 1) allowed.push_back(static_cast<int32_t>(i));
        }
        ASSERT_FALSE(allowed.empty());
        ASSERT_TRUE(matcher.Accept(allowed[rng.Below(allowed.size())]).ok());
      }
    }
  }
}

TEST(MatcherTest, CopiesAndRollbacksAreIndependent) {
  const std::vector<std::string> tokens = SmallVocabulary();
  Matcher matcher(FromPattern("(ab|12)*", tokens));
  ASSERT_TRUE(matcher.AcceptBytes("ab").ok());
  Matcher copy = matcher;
  ASSERT_TRUE(copy.AcceptBytes("1").ok());
  EXPECT_FALSE(copy.complete());
  EXPECT_TRUE(matcher.complete());
  EXPECT_EQ(copy.Forced(10), "2");
  copy.Rollback(2);
  EXPECT_EQ(copy.text(), "");
  EXPECT_EQ(matcher.text(), "ab");
  ASSERT_TRUE(matcher.Accept(256).ok());
  EXPECT_TRUE(matcher.ended());
  EXPECT_FALSE(matcher.Accept('a').ok());
  matcher.Rollback(1);
  EXPECT_TRUE(matcher.Accept('a').ok());
  EXPECT_FALSE(matcher.Accept('a').ok());
  EXPECT_FALSE(matcher.Accept(-1).ok());
  EXPECT_FALSE(matcher.Accept(100'000).ok());
}

// An automaton that is full is left behind, and nobody notices: two matchers take turns, and what
// both of them walk has no room together.
TEST(MatcherTest, AFullAutomatonIsReplaced) {
  const std::vector<std::string> tokens = SmallVocabulary();
  const char* pattern = "a{1,3000}b?|c{1,3000}d?";
  const auto small = FromPattern(pattern, tokens, {.automaton_bytes = 450'000, .masks = 4});
  const auto large = FromPattern(pattern, tokens);
  std::vector<uint64_t> mask((tokens.size() + 63) / 64);
  std::vector<uint64_t> expected(mask.size());
  Matcher small_a(small), small_c(small), large_a(large), large_c(large);
  for (int i = 0; i < 700; ++i) {
    const bool turn = i / 50 % 2 == 0;
    Matcher& tested = turn ? small_a : small_c;
    Matcher& oracle = turn ? large_a : large_c;
    ASSERT_TRUE(tested.AcceptBytes(turn ? "a" : "c").ok()) << i;
    ASSERT_TRUE(oracle.AcceptBytes(turn ? "a" : "c").ok());
    ASSERT_TRUE(tested.Fill(mask).ok()) << i;
    ASSERT_TRUE(oracle.Fill(expected).ok());
    ASSERT_EQ(mask, expected);
  }
  EXPECT_LT(small->bytes(), size_t{1'500'000});
  small_a.Rollback(200);
  EXPECT_TRUE(small_a.AcceptBytes("b").ok());
  EXPECT_FALSE(small_c.AcceptBytes("b").ok());
}

// The places before are taken along, too, each as itself.
TEST(MatcherTest, RollbacksReachBehindAReplacedAutomaton) {
  const std::vector<std::string> tokens = SmallVocabulary();
  const char* pattern = "(ab){1,1500}x?|(cd){1,1500}y?";
  const auto small = FromPattern(pattern, tokens, {.automaton_bytes = 450'000, .masks = 4});
  const auto large = FromPattern(pattern, tokens);
  std::vector<uint64_t> mask((tokens.size() + 63) / 64);
  std::vector<uint64_t> expected(mask.size());
  Matcher tested[] = {Matcher(small), Matcher(small)};
  Matcher oracles[] = {Matcher(large), Matcher(large)};
  for (size_t i = 0; i < 1'400; ++i) {
    const size_t turn = i / 50 % 2;
    const char* text = turn == 0 ? (i % 2 == 0 ? "a" : "b") : (i % 2 == 0 ? "c" : "d");
    ASSERT_TRUE(tested[turn].AcceptBytes(text).ok()) << i;
    ASSERT_TRUE(oracles[turn].AcceptBytes(text).ok());
  }
  for (const size_t turn : {0u, 1u}) {
    for (size_t i = 0; i < Matcher::kRollbackMax; ++i) {
      tested[turn].Rollback(1);
      oracles[turn].Rollback(1);
      ASSERT_EQ(tested[turn].text(), oracles[turn].text());
      ASSERT_TRUE(tested[turn].Fill(mask).ok());
      ASSERT_TRUE(oracles[turn].Fill(expected).ok());
      ASSERT_EQ(mask, expected) << i;
    }
  }
}

TEST(MatcherTest, TheLastPlacesAreKeptHoweverLongTheText) {
  const std::vector<std::string> tokens = SmallVocabulary();
  Matcher matcher(FromPattern("a*", tokens));
  for (size_t size = 1; size <= 5 * Matcher::kRollbackMax; ++size) {
    ASSERT_TRUE(matcher.AcceptBytes("a").ok());
    if (size < Matcher::kRollbackMax) continue;
    Matcher back = matcher;
    back.Rollback(Matcher::kRollbackMax);
    ASSERT_EQ(back.text().size(), size - Matcher::kRollbackMax);
  }
}

TEST(MatcherTest, MasksAreKeptUpToTheirNumber) {
  const std::vector<std::string> tokens = SmallVocabulary();
  constexpr size_t kPlaces = 100;
  std::vector<uint64_t> mask((tokens.size() + 63) / 64);
  const auto bytes_with = [&](size_t masks) {
    const auto language = FromPattern("a{1,500}", tokens, {.masks = masks});
    Matcher matcher(language);
    for (size_t i = 0; i < kPlaces; ++i) {
      EXPECT_TRUE(matcher.Fill(mask).ok());
      EXPECT_TRUE(matcher.AcceptBytes("a").ok());
    }
    return language->bytes();
  };
  const size_t one_mask = mask.size() * sizeof(uint64_t);
  EXPECT_GE(bytes_with(kPlaces) - bytes_with(4), (kPlaces - 4) * one_mask);
}

// What is taken along to a new automaton is a place, not the way to it: a text may be longer than
// any automaton that would know all of it.
TEST(MatcherTest, LongTextsNeedNoMoreRoomThanShortOnes) {
  const std::vector<std::string> tokens = SmallVocabulary();
  const auto language =
      FromPattern("\"[a-z]{0,30000}\",(x|y[a-z]{1,5})z", tokens, {.automaton_bytes = 450'000});
  Matcher matcher(language);
  std::vector<uint64_t> mask((tokens.size() + 63) / 64);
  ASSERT_TRUE(matcher.AcceptBytes("\"").ok());
  for (int i = 0; i < 29'999; ++i) ASSERT_TRUE(matcher.AcceptBytes("a").ok()) << i;
  ASSERT_TRUE(matcher.Fill(mask).ok());
  EXPECT_TRUE(mask['b' / 64] >> ('b' % 64) & 1);
  ASSERT_TRUE(matcher.AcceptBytes("b").ok());
  EXPECT_FALSE(matcher.AcceptBytes("b").ok());
  EXPECT_EQ(matcher.Forced(10), "\",");
  ASSERT_TRUE(matcher.AcceptBytes("\",yab").ok());
  matcher.Rollback(1);
  ASSERT_TRUE(matcher.AcceptBytes("\",x").ok());
  bool ends = false;
  EXPECT_EQ(matcher.Forced(10, &ends), "z");
  EXPECT_TRUE(ends);
  EXPECT_LT(language->bytes(), size_t{1'500'000});
}

// Tokens enough that whole subtrees of the trie are allowed at once, under patterns and counts that
// end in the middle of them.
TEST(MatcherTest, MasksAreExactWherePatternsAreCounted) {
  std::vector<std::string> tokens = SmallVocabulary();
  const std::string_view letters[] = {"a", "b", " ", "z", "é"};
  std::vector<std::string> words = {""};
  for (int length = 1; length <= 4; ++length) {
    std::vector<std::string> longer;
    for (const std::string& word : words) {
      for (const std::string_view letter : letters) longer.push_back(word + std::string(letter));
    }
    words = std::move(longer);
    tokens.insert(tokens.end(), words.begin(), words.end());
  }
  const std::pair<uint32_t, uint32_t> counts[] = {{0, 5},   {1, 9},   {3, 20},
                                                  {10, 12}, {0, 300}, {0, RegexPool::kUnbounded}};
  for (const char* text : {"^(\\S+\\s+){0,3}\\S+$", "az", "^[ab ]*$", "^(a|b|.{2,6}z)$", "^[^]*é$",
                           "^$|^(\\S+\\s+){0,2}\\S+$"}) {
    for (const auto& [min, max] : counts) {
      Grammar grammar;
      RegexPool& pool = grammar.pool();
      const auto pattern =
          Pattern::Parse(text)->Compile(pool, Spelling::kJsonString, Pattern::Match::kSomewhere);
      ASSERT_TRUE(pattern.ok());
      const RegexId any = SpellSet(pool, CharSet::All(), Spelling::kJsonString);
      const RegexId quote = pool.Literal("\"");
      const RegexId inside =
          pool.And(pool.Concat(*pattern, quote), pool.Concat(pool.Repeat(any, min, max), quote));
      if (pool.IsNothing(inside)) continue;
      const RuleId rule = grammar.AddRule();
      grammar.AddRegex(grammar.Begin(rule), inside, grammar.End(rule));
      ASSERT_TRUE(grammar.Finish(rule).ok());
      const auto language = std::make_shared<Language>(std::move(grammar), MakeTrie(tokens));
      ASSERT_TRUE(language->Prepare().ok());
      Rng rng(min + max);
      Matcher matcher(language);
      for (int step = 0; step < 6 && !matcher.ended(); ++step) {
        ExpectExactMask(matcher, tokens);
        size_t token = rng.Below(tokens.size());
        while (!matcher.Accept(static_cast<int32_t>(token)).ok())
          token = (token + 1) % tokens.size();
      }
    }
  }
}

// What compiling and each token lead to is bounded in steps, of which no machine and no other
// request has a say; what takes more is refused by name.
TEST(MatcherTest, NothingTakesMoreThanItsSteps) {
  std::vector<std::string> tokens = SmallVocabulary();
  Rng rng(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string word;
    for (uint64_t length = 1 + rng.Below(16); length > 0; --length) {
      word += "abcABC..-_ 01"[rng.Below(13)];
    }
    tokens.push_back(word);
  }
  int refused = 0;
  for (const char* pattern :
       {"(?!.*://)(?=.{1,255}$)((.{1,63}\\.){1,127}(?![0-9]*$)[a-z0-9-]+\\.?)",
        "(.*a.{40}|.*b.{41}|.*c.{42})", "[a-c]+(\\.[a-c]+)*",
        "((a{1,100}b{1,100}){1,100}c{1,100}){1,100}"}) {
    const auto language = FromPattern(pattern, tokens);
    const Status prepared = language->Prepare();
    EXPECT_LT(language->steps(), 300'000u) << pattern;
    if (!prepared.ok()) {
      EXPECT_EQ(prepared.code(), StatusCode::kUnimplemented);
      EXPECT_NE(prepared.message().find("counts"), std::string::npos);
      ++refused;
      continue;
    }
    Matcher matcher(language);
    std::vector<uint64_t> mask((tokens.size() + 63) / 64);
    for (int i = 0; i < 30 && !matcher.ended(); ++i) {
      const uint64_t before = language->steps();
      if (!matcher.Fill(mask).ok()) break;
      EXPECT_LT(language->steps() - std::min(before, language->steps()), 600'000u) << pattern;
      size_t token = rng.Below(tokens.size());
      while ((mask[token / 64] >> (token % 64) & 1) == 0) token = (token + 1) % tokens.size();
      ASSERT_TRUE(matcher.Accept(static_cast<int32_t>(token)).ok());
    }
  }
  EXPECT_EQ(refused, 1);
}

// What a language takes is held in a ledger, from its compilation to what it grows to; where that
// has no more room the automaton begins anew, and where it never had, the text cannot be followed.
TEST(MatcherTest, WhatItTakesIsHeld) {
  const std::vector<std::string> tokens = SmallVocabulary();
  size_t first = 0;  // that it takes before it is followed
  const auto follow = [&](size_t bytes_max, size_t* most, size_t* left) {
    const auto ledger = std::make_shared<Ledger>(Ledger::Limits{bytes_max, bytes_max});
    Status status;
    {
      Language::Limits limits;
      limits.ledger = ledger;
      limits.share = "t";
      const auto language = FromPattern("(a|b)*a(a|b){60}", tokens, limits);
      if (!language->Hold()) {
        status = FailedPrecondition("no room");
      } else {
        EXPECT_EQ(ledger->bytes(), language->bytes());
        first = ledger->bytes();
        Matcher matcher(language);
        std::vector<uint64_t> mask((tokens.size() + 63) / 64);
        EXPECT_TRUE(matcher.Fill(mask).ok());
        EXPECT_GE(ledger->bytes(), language->grammar().bytes() + mask.size() * sizeof(uint64_t));
        EXPECT_EQ(ledger->bytes(), language->bytes());
        Rng rng(1);
        for (int i = 0; i < 800 && status.ok(); ++i) {
          status = matcher.AcceptBytes(rng.Below(2) ? "a" : "b");
        }
      }
    }
    *most = ledger->bytes_most();
    *left = ledger->bytes();
    return status;
  };
  size_t wanted = 0;
  size_t most = 0;
  size_t left = 0;
  ASSERT_TRUE(follow(size_t{1} << 30, &wanted, &left).ok());
  EXPECT_EQ(left, 0u);
  const size_t scarce = first + (wanted - first) / 10 * 9;
  EXPECT_TRUE(follow(scarce, &most, &left).ok()) << "a fresh automaton has room";
  EXPECT_LE(most, scarce);
  EXPECT_EQ(left, 0u);
  EXPECT_FALSE(follow(1'000, &most, &left).ok());
  EXPECT_EQ(left, 0u);
}

TEST(MatcherTest, TokensThatBeginWithAText) {
  const std::vector<std::string> tokens = SmallVocabulary();
  const auto trie = MakeTrie(tokens);
  EXPECT_EQ(trie->bytes(trie->LongestIn("abcd")), "abc");
  EXPECT_EQ(trie->bytes(trie->LongestIn("axe")), "a");
  EXPECT_EQ(trie->bytes(trie->LongestIn("\":1")), "\":");
  EXPECT_EQ(trie->LongestIn(""), -1);
  EXPECT_TRUE(trie->BeginsLonger("ab"));
  EXPECT_FALSE(trie->BeginsLonger("abc"));
  EXPECT_TRUE(trie->BeginsLonger("quite a long piece"));
  EXPECT_FALSE(trie->BeginsLonger("quite a long piece of text"));
  EXPECT_TRUE(trie->BeginsLonger("\""));
  EXPECT_FALSE(trie->BeginsLonger("zz"));
}

TEST(MatcherTest, GivesUpWithAStatus) {
  const std::vector<std::string> tokens = SmallVocabulary();
  Matcher matcher(FromPattern("(a|b)*a(a|b){3000}", tokens, {.automaton_bytes = 300'000}));
  Status status;
  Rng rng(1);
  for (int i = 0; i < 3000 && status.ok(); ++i)
    status = matcher.AcceptBytes(rng.Below(2) ? "a" : "b");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reprise::grammar
