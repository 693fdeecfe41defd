// SPDX-License-Identifier: Apache-2.0
// What hostile grammars cost: every allocation of this program is counted, and none of them may
// have more than 64 MiB at any time, from its text to the fortieth mask. What it takes is printed,
// too (no test may depend on how fast a machine is; steps are bounded, and those are the same
// anywhere).
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "grammar/matcher.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/json_schema.h"
#include "grammar/syntax/grammar_text.h"

namespace {

std::atomic<size_t> live_bytes{0};
std::atomic<size_t> peak_bytes{0};

void* CountedNew(size_t bytes) {
  void* const place = std::malloc(bytes);
  if (place == nullptr) std::abort();
  const size_t live = live_bytes += malloc_usable_size(place);
  size_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return place;
}

void CountedDelete(void* place) {
  if (place != nullptr) live_bytes -= malloc_usable_size(place);
  std::free(place);
}

}  // namespace

void* operator new(size_t bytes) { return CountedNew(bytes); }
void* operator new[](size_t bytes) { return CountedNew(bytes); }
void operator delete(void* place) noexcept { CountedDelete(place); }
void operator delete[](void* place) noexcept { CountedDelete(place); }
void operator delete(void* place, size_t) noexcept { CountedDelete(place); }
void operator delete[](void* place, size_t) noexcept { CountedDelete(place); }

namespace reprise::grammar {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;

std::string Repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

Result<Grammar> FromSchema(const std::string& text) {
  const auto document = JsonDocument::Parse(text, {.depth_max = 256});
  if (!document.ok()) return document.status();
  return CompileJsonSchema(document->root(), {});
}

Result<Grammar> FromPattern(const std::string& text) {
  Grammar grammar;
  REPRISE_ASSIGN(const Pattern pattern, Pattern::Parse(text));
  REPRISE_ASSIGN(const RegexId regex,
                 pattern.Compile(grammar.pool(), Spelling::kPlain, Pattern::Match::kWhole));
  const RuleId rule = grammar.AddRule();
  grammar.AddRegex(grammar.Begin(rule), regex, grammar.End(rule));
  REPRISE_TRY(grammar.Finish(rule));
  return grammar;
}

Result<Grammar> FromText(const std::string& text) {
  Grammar grammar;
  REPRISE_ASSIGN(const RuleId rule, AddGrammarText(text, &grammar));
  REPRISE_TRY(grammar.Finish(rule));
  return grammar;
}

std::shared_ptr<const TokenTrie> Vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.emplace_back();
  Rng rng(1);
  for (int i = 0; i < 30'000; ++i) {
    std::string word;
    for (uint64_t length = 2 + rng.Below(9); length > 0; --length) {
      word += "abcxyz019 .,:-_\"{}[]()+"[rng.Below(23)];
    }
    tokens.push_back(std::move(word));
  }
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const int32_t ends[] = {256};
  return std::make_shared<const TokenTrie>(views, ends);
}

class HostileTest : public testing::Test {
 protected:
  // Compiles and follows it along random tokens; either may be refused, in a sentence.
  template <typename CompileFn>
  void Bounded(const char* name, CompileFn compile, const std::string& text) {
    peak_bytes = live_bytes.load();
    const size_t before = live_bytes;
    const double start = ThreadSeconds();
    std::string end = "refused: ";
    double compiled_in = 0;
    {
      Result<Grammar> grammar = compile(text);
      compiled_in = ThreadSeconds() - start;
      if (grammar.ok()) {
        const auto language = std::make_shared<Language>(std::move(grammar).value(), trie_);
        Status status = language->Prepare();
        compiled_in = ThreadSeconds() - start;
        if (status.ok()) status = Follow(language);
        end = status.ok() ? "followed" : end + status.message();
      } else {
        EXPECT_FALSE(grammar.status().message().empty());
        end += grammar.status().message();
      }
    }
    const size_t peak = peak_bytes - before;
    EXPECT_LE(peak, kBytesMax) << name;
    std::printf("  %-32s %5.1f MiB, compiled in %4.0f ms, %5.0f ms in all, %s\n", name,
                static_cast<double>(peak) / (1 << 20), compiled_in * 1e3,
                (ThreadSeconds() - start) * 1e3, end.substr(0, 90).c_str());
  }

  Status Follow(const std::shared_ptr<Language>& language) {
    Matcher matcher(language);
    Rng rng(7);
    std::vector<uint64_t> mask((trie_->vocab_size() + 63) / 64);
    for (int i = 0; i < 40 && !matcher.ended(); ++i) {
      REPRISE_TRY(matcher.Fill(mask));
      size_t token = rng.Below(trie_->vocab_size());
      while ((mask[token / 64] >> (token % 64) & 1) == 0) token = (token + 1) % trie_->vocab_size();
      REPRISE_TRY(matcher.Accept(static_cast<int32_t>(token)));
    }
    return OkStatus();
  }

  const std::shared_ptr<const TokenTrie> trie_ = Vocabulary();
};

TEST_F(HostileTest, DeepRecursion) {
  Bounded("schema in a schema, 120 deep", FromSchema,
          Repeated(R"({"items": )", 120) + "{}" + Repeated("}", 120));
  Bounded("schemas that are each other", FromSchema,
          R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"},
             {"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}})");
  Bounded("tree of a schema", FromSchema,
          R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {
             "l": {"$ref": "#/$defs/a"}, "r": {"$ref": "#/$defs/a"}}}}})");
  Bounded("brackets in a pattern", FromPattern, Repeated("(", 5000) + "a" + Repeated(")", 5000));
  Bounded("brackets in a grammar", FromText,
          "root ::= " + Repeated("(", 5000) + "\"a\"" + Repeated(")", 5000));
  Bounded("rules in rules", FromText, "root ::= \"(\" root root \")\" | \"\" | root \"a\"");
}

TEST_F(HostileTest, ExponentialAlternations) {
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    product += (i > 0 ? "," : "") +
               (R"({"anyOf": [{"required": ["a)" + n + R"("]}, {"required": ["b)" + n + "\"]}]}");
  }
  Bounded("all of 40 choices", FromSchema, product + "]}");
  std::string overlapping = R"({"oneOf": [)";
  for (int i = 0; i < 60; ++i) {
    overlapping += (i > 0 ? "," : "") + (R"({"pattern": ")" + std::string(1, char('a' + i % 26)) +
                                         std::to_string(i) + "\"}");
  }
  Bounded("one of 60 patterns", FromSchema, overlapping + "]}");
  Bounded("many ways to the same text", FromPattern, "((a|a?)(a|aa))*{30}(a|b|ab)*c");
  Bounded("positions that are remembered", FromPattern, ".*a.{40}|.*b.{41}|.*c.{42}|.*x.{43}");
  Bounded("intersected positions", FromSchema,
          R"({"allOf": [{"pattern": ".*a.{500}"}, {"pattern": ".*b.{499}"},
             {"not": {"pattern": "c.{300}"}}]})");
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 60; ++i) {
    const std::string next = "r" + std::to_string(i + 1);
    rules += "r" + std::to_string(i) + " ::= " + next + " | " + next + " " + next + "\n";
  }
  Bounded("rules that double", FromText, rules + "r60 ::= \"a\" | \"\"");
  Bounded("sums without brackets", FromText, "root ::= root root | root \"+\" root | [a-z]");
}

TEST_F(HostileTest, MegabytePatterns) {
  std::string letters = Repeated("abcdefghij", 100'000);
  Bounded("1 MB of letters", FromPattern, letters);
  Bounded("1 MB of letters in a schema", FromSchema, R"({"pattern": ")" + letters + "\"}");
  Bounded("1 MB of alternatives", FromPattern, Repeated("ab|cd|", 170'000));
  Bounded("1 MB of classes", FromPattern, Repeated("[a-z0-9]?", 116'000));
  Bounded("1 MB of options", FromPattern, Repeated("(a|b)*", 170'000));
  Bounded("1 MB of a grammar", FromText, "root ::= " + Repeated("\"ab\" [cd] ", 100'000));
  Bounded("1 MB of alternating rules", FromText,
          "root ::= \"x\"" + Repeated(" | \"ab\" [cd]", 70'000));
  std::string names = R"({"enum": ["")";
  for (int i = 0; i < 100'000; ++i) names += ",\"" + std::to_string(i * 7919) + "\"";
  Bounded("1 MB of an enum", FromSchema, names + "]}");
  for (const int count : {1'900, 20'000}) {
    std::string properties = R"({"type": "object", "properties": {"": {})";
    for (int i = 0; i < count; ++i) properties += ",\"p" + std::to_string(i * 7919) + R"(":{})";
    Bounded("1,900 and 20,000 properties", FromSchema, properties + "}}");
  }
}

TEST_F(HostileTest, HugeBounds) {
  Bounded("nested counts", FromPattern, "(((a{1,1000}){1,1000}){1,1000})*b");
  Bounded("counts of counts", FromPattern, "((a{1,100}b{1,100}){1,100}c{1,100}){1,100}");
  Bounded("segments of a name", FromPattern, "(?=.{1,253}$)(.{1,63}\\.){1,127}.{1,63}");
  Bounded("4e9 items", FromSchema, R"({"type": "array", "minItems": 4000000000})");
  Bounded("1e9 characters", FromSchema, R"({"type": "string", "minLength": 1000000000})");
  Bounded("1e9 characters and a pattern", FromSchema,
          R"({"type": "string", "minLength": 1000000000, "pattern": "a.*b.*c"})");
  Bounded("a number of 300 digits", FromSchema,
          R"({"type": "number", "minimum": 1)" + Repeated("0", 300) + "}");
  Bounded("multiples of a large number", FromSchema,
          R"({"type": "integer", "multipleOf": 35184372088831, "minimum": 7})");
  Bounded("rule 1e6 times", FromText, "root ::= (\"a\" b){1000000}\nb ::= \"b\" | b \"c\"");
  Bounded("rules times rules", FromText,
          "root ::= a{900}\na ::= b{900}\nb ::= c{900}\nc ::= \"x\" | \"y\"");
}

TEST_F(HostileTest, LeftRecursionAndEmptyLanguages) {
  Bounded("left recursion", FromText, "root ::= root \"a\" | \"a\"");
  Bounded("hidden left recursion", FromText, "root ::= e root \"a\" | \"b\"\ne ::= \"\" | e e");
  Bounded("left recursion through 2,000", FromText, [] {
    std::string rules = "root ::= r0\n";
    for (int i = 0; i < 2000; ++i) {
      rules +=
          "r" + std::to_string(i) + " ::= r" + std::to_string((i + 1) % 2000) + " \"a\" | \"b\"\n";
    }
    return rules;
  }());
  Bounded("nothing but itself", FromText, "root ::= root");
  Bounded("no text at all", FromText, "root ::= \"a\" root");
  Bounded("no string", FromSchema,
          R"({"type": "string", "pattern": "^a", "not": {"pattern": "a"}})");
  Bounded("no object", FromSchema,
          R"({"type": "object", "required": ["a"], "properties": {"a": false}})");
  Bounded("no pattern", FromPattern, "(?=a)b");
}

}  // namespace
}  // namespace reprise::grammar
