// SPDX-License-Identifier: Apache-2.0
// What a reply may be around its answer: reasoning ends once, text makes no call in passing, a call
// is one of the tool that was asked for.
#include "grammar/reply/reply_grammar.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grammar/parse/automaton.h"

namespace reprise::grammar {
namespace {

constexpr char kTools[] = R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}])";

constexpr CallFormat kFormat = {.name = "test",
                                .call_begin = "<call>",
                                .arguments_begin = " ",
                                .body = CallFormat::Body::kJson,
                                .call_end = "</call>"};
constexpr ReasoningFormat kReasoning = {.name = "test", .begin = "<think>", .end = "</think>"};

using Make = std::function<Result<RuleId>(Grammar*, ReplyGrammar*)>;

void Expect(const Make& make, std::vector<std::string_view> yes, std::vector<std::string_view> no) {
  auto grammar = std::make_shared<Grammar>();
  ReplyGrammar reply(grammar.get(), {});
  const Result<RuleId> rule = make(grammar.get(), &reply);
  ASSERT_TRUE(rule.ok()) << rule.status().message();
  ASSERT_TRUE(grammar->Finish(*rule).ok());
  Automaton automaton(grammar, size_t{32} << 20);
  const auto accepts = [&](std::string_view text) {
    PlaceId place = automaton.start();
    for (const char byte : text) place = automaton.Next(place, static_cast<uint8_t>(byte));
    return automaton.Accepts(place);
  };
  for (const auto text : yes) EXPECT_TRUE(accepts(text)) << text;
  for (const auto text : no) EXPECT_FALSE(accepts(text)) << text;
}

Result<RuleId> Calls(ReplyGrammar* reply, const ReplyGrammar::CallRules& rules,
                     const char* tools = kTools) {
  const auto document = JsonDocument::Parse(tools);
  CHECK(document.ok());
  return reply->AddCalls(kFormat, document->root(), rules);
}

TEST(ReplyGrammarTest, CallsFitTheirSchema) {
  Expect([](Grammar*, ReplyGrammar* reply) { return Calls(reply, {}); },
         {R"(<call>f {"n": 1}</call>)", R"(<call>g {"x": []}</call>)",
          R"(<call>f {"n": 1}</call><call>g {}</call>)",
          "<call>f {\"n\": 1}</call>\n<call>f {\"n\": 2}</call>"},
         {"", "f", R"(<call>f {"n": 3}</call>)", R"(<call>f {}</call>)", R"(<call>h {}</call>)",
          R"(<call>g []</call>)", R"(<call>g {}</call> and more)"});
}

TEST(ReplyGrammarTest, TheOnlyToolIsTheOnlyOne) {
  Expect([](Grammar*, ReplyGrammar* reply) { return Calls(reply, {.only = "f", .one = true}); },
         {R"(<call>f {"n": 1}</call>)"},
         {R"(<call>g {}</call>)", R"(<call>f {"n": 1}</call><call>f {"n": 1}</call>)"});
  Grammar grammar;
  ReplyGrammar reply(&grammar, {});
  EXPECT_EQ(Calls(&reply, {.only = "h"}).status().code(), StatusCode::kInvalidArgument);
}

TEST(ReplyGrammarTest, OneCallIsNotFollowedByAnother) {
  Expect([](Grammar*, ReplyGrammar* reply) { return Calls(reply, {.one = true}); },
         {R"(<call>g {}</call>)"}, {R"(<call>g {}</call><call>g {}</call>)"});
}

// A schema that cannot be enforced: any object, unless the tool is strict, or the only one.
TEST(ReplyGrammarTest, StrictToolsAreEnforcedOrRefused) {
  const auto tools = [](const char* strict) {
    return std::string(R"([{"name": "f", "strict": )") + strict +
           R"(, "parameters": {"type": "object", "unevaluatedProperties": false}}])";
  };
  Expect([&](Grammar*, ReplyGrammar* reply) { return Calls(reply, {}, tools("false").c_str()); },
         {R"(<call>f {"any": 1}</call>)"}, {R"(<call>f 1</call>)"});
  for (const auto& [strict, only] : {std::pair("true", ""), std::pair("false", "f")}) {
    Grammar grammar;
    ReplyGrammar reply(&grammar, {});
    const Result<RuleId> rule = Calls(&reply, {.only = only}, tools(strict).c_str());
    ASSERT_FALSE(rule.ok()) << strict << only;
    EXPECT_NE(rule.status().message().find("unevaluatedProperties"), std::string::npos);
  }
}

TEST(ReplyGrammarTest, TextMakesNoCallInPassing) {
  Expect(
      [](Grammar*, ReplyGrammar* reply) -> Result<RuleId> {
        REPRISE_ASSIGN(const RuleId calls, Calls(reply, {}));
        return reply->AddTextThenCalls(kFormat, calls);
      },
      {"", "some text", R"(<call>f {"n": 1}</call>)", R"(text <cal <call>f {"n": 1}</call>)"},
      {R"(text <call>f {"n": 3}</call>)", "<call>", R"(text <call>h {}</call> more)"});
}

TEST(ReplyGrammarTest, ReasoningEndsOnce) {
  for (const bool begun : {false, true}) {
    const std::string begin = begun ? "" : "<think>";
    const std::string once = begin + "so</think>\n\n[]";
    const std::string early = begin + "</think>[]";
    const std::string twice = begin + "so</think>, and</think>[]";
    const std::string open = begin + "so []";
    Expect(
        [&](Grammar* grammar, ReplyGrammar* reply) -> Result<RuleId> {
          const RuleId answer = grammar->AddRule();
          grammar->AddRegex(grammar->Begin(answer), grammar->pool().Literal("[]"),
                            grammar->End(answer));
          return reply->AddReasoning(kReasoning, begun, answer);
        },
        {once, early}, {twice, open, begin + "so</think>", begin + "so</think>{}"});
  }
}

}  // namespace
}  // namespace reprise::grammar
