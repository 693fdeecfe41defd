// SPDX-License-Identifier: Apache-2.0
// The automaton against a parser that cannot be wrong: random small grammars, every text up to a
// length, membership by brute force; and that loops of a grammar are loops of the automaton.
#include "grammar/parse/automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/rng.h"

namespace reprise::grammar {
namespace {

struct Toy {
  // rules[i]: alternatives, each a sequence of symbols: a rule ('A' + index) or a letter of text.
  std::vector<std::vector<std::string>> rules;
};

// All texts of at most `max` letters, by fixed point.
std::set<std::string> Texts(const Toy& toy, size_t max) {
  std::vector<std::set<std::string>> texts(toy.rules.size());
  for (bool grew = true; grew;) {
    grew = false;
    for (size_t rule = 0; rule < toy.rules.size(); ++rule) {
      for (const std::string& alternative : toy.rules[rule]) {
        std::set<std::string> made = {""};
        for (const char symbol : alternative) {
          std::set<std::string> longer;
          for (const std::string& head : made) {
            if (symbol >= 'A' && symbol <= 'Z') {
              for (const std::string& tail : texts[static_cast<size_t>(symbol - 'A')]) {
                if (head.size() + tail.size() <= max) longer.insert(head + tail);
              }
            } else if (head.size() < max) {
              longer.insert(head + symbol);
            }
          }
          made = std::move(longer);
        }
        for (const std::string& text : made) grew |= texts[rule].insert(text).second;
      }
    }
  }
  return texts[0];
}

Status Build(const Toy& toy, Grammar* grammar) {
  std::vector<RuleId> rules;
  for (size_t i = 0; i < toy.rules.size(); ++i) rules.push_back(grammar->AddRule());
  for (size_t i = 0; i < toy.rules.size(); ++i) {
    for (const std::string& alternative : toy.rules[i]) {
      StateId at = grammar->Begin(rules[i]);
      for (const char symbol : alternative) {
        const StateId to = grammar->AddState();
        if (symbol >= 'A' && symbol <= 'Z') {
          grammar->AddCall(at, rules[static_cast<size_t>(symbol - 'A')], to);
        } else {
          grammar->AddRegex(at, grammar->pool().Literal(std::string(1, symbol)), to);
        }
        at = to;
      }
      grammar->AddEmpty(at, grammar->End(rules[i]));
    }
  }
  return grammar->Finish(rules[0]);
}

TEST(AutomatonTest, RandomGrammarsAgreeWithBruteForce) {
  constexpr size_t kMax = 6;
  Rng rng(11);
  int empty = 0;
  for (int round = 0; round < 500; ++round) {
    Toy toy;
    toy.rules.resize(1 + rng.Below(4));
    for (auto& rule : toy.rules) {
      for (uint64_t n = 1 + rng.Below(3); n > 0; --n) {
        std::string alternative;
        for (uint64_t length = rng.Below(4); length > 0; --length) {
          alternative += rng.Below(2) == 0 ? static_cast<char>('a' + rng.Below(2))
                                           : static_cast<char>('A' + rng.Below(toy.rules.size()));
        }
        rule.push_back(alternative);
      }
    }
    const std::set<std::string> texts = Texts(toy, kMax);
    auto grammar = std::make_shared<Grammar>();
    const Status status = Build(toy, grammar.get());
    if (!status.ok()) {
      // Nothing short may be derived either (nor anything long, but that is beyond the oracle).
      EXPECT_TRUE(texts.empty());
      ++empty;
      continue;
    }
    Automaton automaton(grammar, size_t{16} << 20);
    const std::function<void(PlaceId, std::string)> check = [&](PlaceId place, std::string text) {
      ASSERT_EQ(automaton.Accepts(place), texts.contains(text)) << text;
      const bool prefix = std::ranges::any_of(
          texts, [&](const std::string& whole) { return whole.starts_with(text); });
      if (prefix) {
        EXPECT_NE(place, PlaceId::kDead) << text;
      }
      if (text.size() == kMax || place == PlaceId::kDead) return;
      for (const char letter : {'a', 'b'}) {
        check(automaton.Next(place, static_cast<uint8_t>(letter)), text + letter);
      }
    };
    check(automaton.start(), "");
    EXPECT_FALSE(automaton.exhausted());
  }
  EXPECT_GT(empty, 10);
  EXPECT_LT(empty, 300);
}

// list: "[" (item ("," item)*)? "]", where item is a number or a list.
TEST(AutomatonTest, LoopsComeBackToTheSamePlace) {
  auto grammar = std::make_shared<Grammar>();
  RegexPool& pool = grammar->pool();
  const RuleId list = grammar->AddRule();
  const RuleId item = grammar->AddRule();
  const StateId open = grammar->AddState();
  const StateId after = grammar->AddState();
  const StateId again = grammar->AddState();
  grammar->AddRegex(grammar->Begin(list), pool.Literal("["), open);
  grammar->AddCall(open, item, after);
  grammar->AddRegex(after, pool.Literal(","), again);
  grammar->AddCall(again, item, after);
  grammar->AddRegex(after, pool.Literal("]"), grammar->End(list));
  grammar->AddRegex(open, pool.Literal("]"), grammar->End(list));
  grammar->AddRegex(grammar->Begin(item), pool.Repeat(pool.Bytes(ByteSet::Range('0', '9')), 1),
                    grammar->End(item));
  grammar->AddCall(grammar->Begin(item), list, grammar->End(item));
  ASSERT_TRUE(grammar->Finish(list).ok());

  Automaton automaton(grammar, size_t{16} << 20);
  const auto walk = [&](std::string_view text) {
    PlaceId place = automaton.start();
    for (const char byte : text) place = automaton.Next(place, static_cast<uint8_t>(byte));
    return place;
  };
  EXPECT_EQ(walk("[1,"), walk("[12,34,[5],"));
  EXPECT_NE(walk("[1,"), walk("[[1,"));
  EXPECT_EQ(walk("[[1],[2,"), walk("[[1],[2],[[3]],[9,"));
  EXPECT_TRUE(automaton.Accepts(walk("[[],[1,2],3]")));
  EXPECT_FALSE(automaton.Accepts(walk("[[],[1,2],3")));
  EXPECT_EQ(walk("[1,,"), PlaceId::kDead);
  EXPECT_EQ(walk("[]]"), PlaceId::kDead);
}

// tail: "a" tail | "" is followed through ten thousand letters without going through all of them
// at each.
TEST(AutomatonTest, RightRecursionIsLinear) {
  Toy toy{{{"aA", ""}}};
  auto grammar = std::make_shared<Grammar>();
  ASSERT_TRUE(Build(toy, grammar.get()).ok());
  Automaton automaton(grammar, size_t{64} << 20);
  PlaceId place = automaton.start();
  for (int i = 0; i < 10'000; ++i) {
    place = automaton.Next(place, 'a');
    ASSERT_TRUE(automaton.Accepts(place));
  }
}

TEST(AutomatonTest, IsExhaustedNotEndless) {
  Toy toy{{{"AA", "a", "b", "aAb"}}};
  auto grammar = std::make_shared<Grammar>();
  ASSERT_TRUE(Build(toy, grammar.get()).ok());
  Automaton automaton(grammar, size_t{1} << 20);
  PlaceId place = automaton.start();
  for (int i = 0; i < 100'000 && !automaton.exhausted(); ++i) place = automaton.Next(place, 'a');
  EXPECT_TRUE(automaton.exhausted());
  EXPECT_LT(automaton.bytes(), size_t{4} << 20);
}

TEST(AutomatonTest, TellsWhatIsForcedAndWhatIsFree) {
  auto grammar = std::make_shared<Grammar>();
  RegexPool& pool = grammar->pool();
  const RuleId rule = grammar->AddRule();
  const StateId middle = grammar->AddState();
  grammar->AddRegex(grammar->Begin(rule), pool.Literal("ab\""), middle);
  ByteSet plain = ByteSet::Range(0x20, 0x7F) & ~ByteSet::Of('"') & ~ByteSet::Of('\\');
  const RegexId character =
      pool.Or({pool.Bytes(plain), pool.Concat(pool.Bytes(ByteSet::Range(0xC2, 0xDF)),
                                              pool.Bytes(ByteSet::Range(0x80, 0xBF)))});
  grammar->AddRegex(middle, pool.Concat(pool.Repeat(character, 0, 5), pool.Literal("\"")),
                    grammar->End(rule));
  ASSERT_TRUE(grammar->Finish(rule).ok());
  Automaton automaton(grammar, size_t{16} << 20);
  EXPECT_EQ(automaton.OnlyByte(automaton.start()), 'a');
  const PlaceId free =
      automaton.Next(automaton.Next(automaton.Next(automaton.start(), 'a'), 'b'), '"');
  EXPECT_EQ(automaton.OnlyByte(free), -1);
  EXPECT_EQ(automaton.PlainDepth(free), 0);  // characters of three bytes are missing
}

}  // namespace
}  // namespace reprise::grammar
