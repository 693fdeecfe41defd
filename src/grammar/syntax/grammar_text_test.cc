// SPDX-License-Identifier: Apache-2.0
// Grammars in both notations, on texts that they have and texts that they do not.
#include "grammar/syntax/grammar_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/parse/automaton.h"

namespace reprise::grammar {
namespace {

void Expect(std::string_view text, std::vector<std::string_view> yes,
            std::vector<std::string_view> no) {
  auto grammar = std::make_shared<Grammar>();
  const auto rule = AddGrammarText(text, grammar.get());
  ASSERT_TRUE(rule.ok()) << text << ": " << rule.status().message();
  const Status finished = grammar->Finish(*rule);
  ASSERT_TRUE(finished.ok()) << text << ": " << finished.message();
  Automaton automaton(grammar, size_t{16} << 20);
  const auto accepts = [&](std::string_view input) {
    PlaceId place = automaton.start();
    for (const char byte : input) place = automaton.Next(place, static_cast<uint8_t>(byte));
    return automaton.Accepts(place);
  };
  for (const auto input : yes) EXPECT_TRUE(accepts(input)) << text << " on " << input;
  for (const auto input : no) EXPECT_FALSE(accepts(input)) << text << " on " << input;
}

void ExpectRefused(std::string_view text, std::string_view why) {
  Grammar grammar;
  const auto rule = AddGrammarText(text, &grammar);
  const Status status = rule.ok() ? grammar.Finish(*rule) : rule.status();
  ASSERT_FALSE(status.ok()) << text;
  EXPECT_NE(status.message().find(why), std::string::npos) << text << ": " << status.message();
}

TEST(GrammarTextTest, Gbnf) {
  Expect("root ::= \"a\" [0-9]+ item{2,3} | \"\\n\\x41\"  # a comment\nitem ::= \"x\" | \"yy\"",
         {"a1xx", "a12yyxx", "\nA"}, {"axx", "a1x", "a1xxxx", ""});
  Expect("root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9] | \"(\" expr \")\"",
         {"1", "1+2+3", "(1+(2))"}, {"", "1+", "(1", "1)"});
  Expect("root ::= (\"a\" |\n \"b\")* \".\"?", {"", "abab.", "."}, {"c", ".."});
  Expect("root ::= [^\"\\n]{2} .", {"ab\n", "é€\""}, {"a\"b", "ab"});
  // No longest match: the second [a]+ gets its share.
  Expect("root ::= [a]+ [a]+", {"aa", "aaaa"}, {"a"});
}

TEST(GrammarTextTest, Lark) {
  Expect("start: \"a\" /[0-9]+/ [item] ITEM~2..3\n// a comment\nitem: \"-\"\nITEM: \"x\" | \"y\"",
         {"a1xx", "a12-xyx"}, {"axx", "a1x", "a1--xx"});
  Expect("?start: sum\nsum: sum \"+\" NUM | NUM\nNUM: /\\d+/", {"1", "12+3+4"}, {"", "+", "1+"});
}

TEST(GrammarTextTest, RefusesByNameAndLine) {
  ExpectRefused("root ::= a", "\"a\" is not defined");
  ExpectRefused("a ::= \"x\"", "no rule \"root\"");
  ExpectRefused("root ::= \"x\nroot ::= \"y\"", "not closed");
  ExpectRefused("root ::= \"x\"\nroot ::= \"y\"", "line 2");
  ExpectRefused("root ::= root \"x\"", "no text at all");
  ExpectRefused("start: \"x\"\n%ignore \" \"", "%ignore");
  ExpectRefused("root ::= \"x\"{9999}", "2,000");
  ExpectRefused("root ::= \"x\"{9999,}", "2,000");
  ExpectRefused("root ::= ((((\"x\"", "not closed");
  ExpectRefused("start: /[0-9]\\", "not closed");
  ExpectRefused("root ::= [0-9\\", "not closed");
  ExpectRefused("root ::= " + std::string(200, '('), "nested");
  ExpectRefused("", "no rule");
}

}  // namespace
}  // namespace reprise::grammar
